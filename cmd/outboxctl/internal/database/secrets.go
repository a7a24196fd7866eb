package database

import (
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

var (
	// userinfo is what stands before the last @ of a DSN's address.
	userinfo = regexp.MustCompile(`^(?:[a-z0-9]+://)?[^:/@]*:(.*)@`)
	// assigned is a value of a parameter, or of a keyword, whose name says that it
	// is secret.
	assigned = regexp.MustCompile(`(?i)[a-z_]*(?:pass|secret|token|key)[a-z_]*\s*=\s*('(?:[^'\\]|\\.)*'|[^\s&]*)`)
)

// SecretsIn returns what may be secret in a DSN, whether or not it can be parsed,
// as it stands there and decoded.
func SecretsIn(dsn string) (secrets []string) {
	add := func(s string) {
		secrets = append(secrets, s, strings.Trim(s, "'"))
		if decoded, err := url.PathUnescape(s); err == nil {
			secrets = append(secrets, decoded)
		}
	}
	add(dsn)
	if m := userinfo.FindStringSubmatch(dsn); m != nil {
		add(m[1])
	}
	for _, m := range assigned.FindAllStringSubmatch(dsn, -1) {
		add(m[1])
	}
	return secrets
}

// Redact masks the secrets in a text where a DSN is told: a whole DSN, and else what
// stands between a name and the end of its value, as in user:SECRET@ or
// password='SECRET'. Elsewhere the same letters are no secret: a password may be a
// word, or a single letter, of everything that is said.
func Redact(text string, secrets []string) string {
	for _, s := range secrets {
		secrets = append(secrets, url.QueryEscape(s), url.PathEscape(s), strings.Trim(strconv.Quote(s), `"`))
	}
	// The longest first, so that none shows through another.
	slices.SortFunc(secrets, func(a, b string) int { return len(b) - len(a) })
	for _, s := range secrets {
		switch {
		case s == "":
		case strings.Contains(s, "@") && userinfo.MatchString(s):
			text = strings.ReplaceAll(text, s, mask)
		default:
			value := regexp.MustCompile(`([:=]['"]?)` + regexp.QuoteMeta(s) + `(['"]?(?:[@&;\s]|$))`)
			text = value.ReplaceAllString(text, "${1}"+mask+"${2}")
		}
	}
	return text
}

const mask = "*****"
