package matrix

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/onward-go/outbox/persistence"
	"github.com/onward-go/outbox/sqltx"
)

// What is in the way to a database says what to do: another kind of database, one that
// does not exist, a user that is not known, and one that may not.
func TestWhatIsInTheWayToADatabaseSaysWhatToDo(t *testing.T) {
	for _, server := range Servers {
		if server.Kind == nil {
			continue
		}
		t.Run(server.Name, func(t *testing.T) {
			t.Parallel()
			driver, _, dialect, _ := settingsOf(server)
			dsn := server.New(t)
			plain := openSQL(t, driver, dsn)
			require.NoError(t, sqltx.New(plain, dialect).Migrate(t.Context()))
			for _, other := range []sqltx.Dialect{sqltx.Postgres, sqltx.MySQL, sqltx.SQLite} {
				if other == dialect {
					continue
				}
				outbox := sqltx.New(plain, other)
				_, err := outbox.ReadAfter(t.Context(), persistence.Cursor{}, 1)
				require.ErrorIs(t, err, persistence.ErrUnsupported)
				require.ErrorContains(t, err, "pass the dialect "+string(dialect))
				v, err := outbox.Validate(t.Context())
				require.ErrorIs(t, err, persistence.ErrUnsupported)
				require.Len(t, v.Findings, 1)
			}

			name := regexp.MustCompile(`outbox_test_\w+`)
			_, err := sqltx.New(openSQL(t, driver, name.ReplaceAllString(dsn, "nowhere")), dialect).Validate(t.Context())
			require.ErrorContains(t, err, "create the database, or correct its name in the DSN")

			db := Open(t, server.Open(dsn), &gorm.Config{Logger: logger.Discard})
			dialector, _ := userOf(t, server, db, dsn)
			user, err := Open(t, dialector, &gorm.Config{Logger: logger.Discard}).DB()
			require.NoError(t, err)
			_, err = sqltx.New(user, dialect).ReadAfter(t.Context(), persistence.Cursor{}, 1)
			require.ErrorIs(t, err, persistence.ErrPrivilege)
			require.ErrorContains(t, err, "grant what the role needs, all of which Validate names")
			require.Equal(t, 1, strings.Count(err.Error(), "grant what"))
		})
	}
}
