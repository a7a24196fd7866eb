package database

import (
	"net/url"
	"regexp"
	"slices"
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

// Redact replaces the secrets in a text, the longest first, so that none shows
// through another.
func Redact(text string, secrets []string) string {
	secrets = slices.Clone(secrets)
	for _, s := range secrets {
		secrets = append(secrets, url.QueryEscape(s), url.PathEscape(s))
	}
	slices.SortFunc(secrets, func(a, b string) int { return len(b) - len(a) })
	for _, s := range secrets {
		if s != "" {
			text = strings.ReplaceAll(text, s, "*****")
		}
	}
	return text
}
