package schema_test

import (
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/persistence"
	"github.com/onward-go/outbox/schema"
)

func TestEveryDialectEndsAtTheVersion(t *testing.T) {
	dialects, err := fs.ReadDir(schema.Files, ".")
	require.NoError(t, err)
	require.Len(t, dialects, 3)
	for _, d := range dialects {
		migrations, err := schema.Render(d.Name(), schema.Naming{Prefix: "x_"})
		require.NoError(t, err)
		for i, m := range migrations {
			require.Equal(t, i+1, m.Version, "numbers have no gap")
			for _, statement := range m.Statements {
				require.NotRegexp(t, `\{(schema|schema_name|prefix)\}`, statement)
				require.NotEmpty(t, statement)
			}
		}
		highest := 0
		for _, m := range migrations {
			highest = max(highest, m.Recorded())
			last := m.Statements[len(m.Statements)-1]
			require.Contains(t, last, fmt.Sprintf("x_outbox_schema%s (version) VALUES (%d);", quote(d.Name()), m.Recorded()), "what it is recorded by")
		}
		require.Equal(t, schema.Version, highest)
	}
}

func TestNamesThatAreNoIdentifiersAreRefused(t *testing.T) {
	for _, bad := range []schema.Naming{
		{Prefix: "1x"}, {Prefix: "a-b"}, {Prefix: `a"b`}, {Prefix: "a b"}, {Prefix: "é"}, {Prefix: strings.Repeat("x", 33)},
		{Schema: "a.b"}, {Schema: "a;b"}, {Schema: strings.Repeat("x", 64)},
	} {
		_, err := schema.Render(schema.Postgres, bad)
		require.ErrorIs(t, err, persistence.ErrInvalid, "%+v", bad)
	}
	_, err := schema.Render(schema.SQLite, schema.Naming{Schema: "app"})
	require.ErrorIs(t, err, persistence.ErrInvalid)
	_, err = schema.Render("oracle", schema.Naming{})
	require.ErrorContains(t, err, "oracle")
	require.NoError(t, schema.Naming{Schema: "App", Prefix: "_iam2_"}.Check(schema.Postgres))
}

// quote ends a quoted name of the dialect.
func quote(dialect string) string {
	if dialect == schema.MySQL {
		return ""
	}
	return `"`
}
