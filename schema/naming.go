package schema

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/onward-go/outbox/persistence"
)

// Naming says what the tables are called: <Schema>.<Prefix>outbox and so on.
// The zero value is the table outbox in the connection's default schema.
type Naming struct {
	// Schema is the PostgreSQL schema that holds the tables, whatever the
	// search path; up to 63 bytes. Empty: the first one of the search path.
	Schema string
	// Prefix goes before each name; up to 32 bytes.
	Prefix string
}

var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

const (
	maxSchemaBytes = 63
	maxPrefixBytes = 32 // leaves room for outbox_idempotency_p2026_11 in 63
)

// Check returns persistence.ErrInvalid, joined, for what is wrong with the
// names on the dialect.
func (n Naming) Check(dialect string) error {
	var problems []error
	check := func(field, value string, limit int) {
		switch {
		case value == "":
		case len(value) > limit:
			problems = append(problems, fmt.Errorf("%w: %s %q is %d bytes, the limit is %d", persistence.ErrInvalid, field, value, len(value), limit))
		case !identifier.MatchString(value):
			problems = append(problems, fmt.Errorf("%w: %s %q is no identifier (letters, digits and _, not beginning with a digit)", persistence.ErrInvalid, field, value))
		}
	}
	check("table prefix", n.Prefix, maxPrefixBytes)
	check("schema", n.Schema, maxSchemaBytes)
	if n.Schema != "" && dialect != Postgres {
		problems = append(problems, fmt.Errorf("%w: schema %q: %s has no schemas", persistence.ErrInvalid, n.Schema, dialect))
	}
	return errors.Join(problems...)
}

// Outbox returns the name of the outbox table, for messages.
func (n Naming) Outbox() string {
	if n.Schema != "" {
		return n.Schema + "." + n.Prefix + "outbox"
	}
	return n.Prefix + "outbox"
}

// Expand fills the names into a template. See [Files] for what it replaces.
func (n Naming) Expand(template string) string {
	qualifier := ""
	if n.Schema != "" {
		qualifier = `"` + n.Schema + `".`
	}
	return strings.NewReplacer("{schema}", qualifier, "{schema_name}", n.Schema, "{prefix}", n.Prefix).Replace(template)
}
