package matrix

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/onward-go/outbox/internal/gormtest"
)

// Whatever a rule leaves behind does not reach the next one.
func TestDatabasesThatAreUsedAgainAreAsNew(t *testing.T) {
	for _, server := range Servers {
		t.Run(server.Name, func(t *testing.T) {
			t.Parallel()
			reused := newDatabases(t, server, variant{beside: true})
			reused.patience = time.Minute // a machine that is busy gives up none
			rule := func(name string, rule func(t *testing.T, db *gorm.DB)) {
				t.Run(name, func(t *testing.T) { rule(t, reused.take(t)) })
			}
			rule("rows", func(t *testing.T, db *gorm.DB) {
				require.Empty(t, reused.free)
				fillOutbox(t, db, gormtest.Naming{})
				require.NoError(t, db.Exec("INSERT INTO outboxtest_state (k, v) VALUES ('k', 'v')").Error)
			})
			require.Len(t, reused.free, 1)
			one, now := reused.free[0], &database{}
			require.NoError(t, reused.visit(one.dsn, now.remember))
			require.Equal(t, one.relations, now.relations)
			require.Equal(t, one.rows, now.rows)
			require.NotEmpty(t, now.rows["busy_outbox"])
			require.Empty(t, now.rows["outbox"])

			rule("none", func(t *testing.T, db *gorm.DB) {
				require.Empty(t, reused.free, "it is the same one")
				two := reused.take(t)
				require.NoError(t, two.Exec("INSERT INTO outboxtest_state (k, v) VALUES ('k', 'v')").Error)
				requireRows(t, db, "outboxtest_state", 0)
			})
			require.Len(t, reused.free, 2)
			reused.free = nil

			for what, statement := range map[string]string{
				"a table":                   "CREATE TABLE another (n INT)",
				"a row that was there":      "DELETE FROM outbox_schema",
				"a row of the other outbox": "UPDATE busy_outbox SET account_id = 'changed'",
			} {
				rule(what, func(t *testing.T, db *gorm.DB) { require.NoError(t, db.Exec(statement).Error) })
				require.Empty(t, reused.free, what)
			}
			if server.Partitions {
				rule("partitions", func(t *testing.T, db *gorm.DB) {
					require.NoError(t, gormtest.Partition(t.Context(), db, gormtest.Naming{}, startOfMonth(-1)))
				})
				require.Empty(t, reused.free)
			}
			reused.patience = time.Second // what these leave is never emptied
			leave := map[string]string{"a writer": "INSERT INTO outboxtest_state (k, v) VALUES ('k', 'v')"}
			if server.Kind != nil { // SQLite's readers are in nobody's way
				leave["a reader"] = "SELECT * FROM outboxtest_state"
			}
			for who, statement := range leave {
				rule(who, func(t *testing.T, db *gorm.DB) { require.NoError(t, db.Begin().Exec(statement).Error) })
				require.Empty(t, reused.free, who)
			}
		})
	}
}
