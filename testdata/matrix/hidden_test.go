package matrix

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/persistence"
	"github.com/onward-go/outbox/schema"
	"github.com/onward-go/outbox/sqltx"
)

var outboxTables = []string{"outbox_schema", "outbox", "outbox_idempotency", "outbox_dedup", "outbox_cursors", "outbox_subscriptions",
	"outbox_audit", "outbox_attempts", "outbox_dead_letters"}

// underPolicies is a user of PostgreSQL that may do everything with the tables, but for what
// their policies say.
func underPolicies(t *testing.T, admin *sql.DB, dsn string) (name string, db *sql.DB) {
	t.Helper()
	name = strings.ToLower("u" + events.NewID()[24:])
	for _, q := range []string{
		"CREATE ROLE %s LOGIN PASSWORD 'secret'",
		"GRANT ALL ON ALL TABLES IN SCHEMA public TO %s",
		"GRANT ALL ON SCHEMA public TO %s",
	} {
		runSQL(t, admin, q, name)
	}
	t.Cleanup(func() {
		runSQL(t, admin, "DROP OWNED BY %s", name)
		runSQL(t, admin, "DROP ROLE %s", name)
	})
	u, err := url.Parse(dsn)
	require.NoError(t, err)
	u.User = url.UserPassword(name, "secret")
	return name, openSQL(t, "pgx", u.String())
}

func runSQL(t *testing.T, db *sql.DB, format string, args ...any) {
	t.Helper()
	_, err := db.ExecContext(context.WithoutCancel(t.Context()), fmt.Sprintf(format, args...))
	require.NoError(t, err)
}

func dispatcherOf(t *testing.T, outbox *sqltx.Outbox) *events.Dispatcher {
	t.Helper()
	d := events.NewDispatcher(outbox, outbox, outbox, outbox)
	require.NoError(t, d.Subscribe("t", "h", func(context.Context, events.Event) error { return nil }))
	return d
}

func publishOne(t *testing.T, outbox *sqltx.Outbox) {
	t.Helper()
	require.NoError(t, outbox.Atomically(t.Context(), func(ctx context.Context) error {
		return events.NewPublisher(outbox).Publish(ctx, events.Event{Type: "t", AggregateType: "a", AggregateID: "1", AccountID: "other", DedupKey: events.NewID()})
	}))
}

// A dispatcher that does not see all rows would pass the others. It is refused, on
// whatever table the policy is, and a producer is not.
func TestPostgresRowLevelSecurityIsRefused(t *testing.T) {
	t.Parallel()
	dsn := PostgresDSN(t)
	admin := openSQL(t, "pgx", dsn)
	require.NoError(t, sqltx.New(admin, sqltx.Postgres).Migrate(t.Context()))
	name, db := underPolicies(t, admin, dsn)
	for _, table := range outboxTables {
		runSQL(t, admin, "ALTER TABLE %s ENABLE ROW LEVEL SECURITY", table)
		runSQL(t, admin, `CREATE POLICY "of %s" ON %[1]s USING (true) WITH CHECK (true)`, table)
		outbox := sqltx.New(db, sqltx.Postgres)
		publishOne(t, outbox)
		check := func(err error) {
			t.Helper()
			require.ErrorIs(t, err, persistence.ErrPrivilege)
			require.ErrorContains(t, err, "rows of table "+table+" from the user (policies: of "+table+")")
			require.ErrorContains(t, err, "BYPASSRLS")
		}
		_, err := outbox.ReadAfter(t.Context(), persistence.Cursor{}, 1)
		check(err)
		_, err = dispatcherOf(t, outbox).RunOnce(t.Context(), 1)
		check(err)
		_, err = persistence.Retain(t.Context(), outbox, 90*day, persistence.RetentionOptions{})
		check(err)
		v, err := outbox.Validate(t.Context())
		check(err)
		require.Contains(t, problems(t, v, err), table)
		v, err = outbox.Validate(t.Context(), persistence.RoleProducer)
		require.Empty(t, problems(t, v, err))

		// Who passes by all policies sees everything.
		runSQL(t, admin, "ALTER ROLE %s BYPASSRLS", name)
		n, err := dispatcherOf(t, sqltx.New(db, sqltx.Postgres)).RunOnce(t.Context(), 10)
		require.NoError(t, err)
		require.Equal(t, 1, n)
		runSQL(t, admin, "ALTER ROLE %s NOBYPASSRLS", name)
		runSQL(t, admin, "ALTER TABLE %s DISABLE ROW LEVEL SECURITY", table)
	}
	n, err := dispatcherOf(t, sqltx.New(db, sqltx.Postgres)).RunOnce(t.Context(), 10)
	require.NoError(t, err)
	require.Zero(t, n)
}

// Policies may come while a dispatcher is at work: what reads the outbox sees to it
// itself, and each lease looks at all tables.
func TestPostgresRowLevelSecurityThatComesLaterIsRefused(t *testing.T) {
	t.Parallel()
	dsn := PostgresDSN(t)
	admin := openSQL(t, "pgx", dsn)
	require.NoError(t, sqltx.New(admin, sqltx.Postgres).Migrate(t.Context()))
	_, db := underPolicies(t, admin, dsn)
	outbox := sqltx.New(db, sqltx.Postgres)
	d := dispatcherOf(t, outbox)
	publishOne(t, outbox)
	n, err := d.RunOnce(t.Context(), 10)
	require.NoError(t, err)
	require.Equal(t, 1, n)

	runSQL(t, admin, "ALTER TABLE outbox ENABLE ROW LEVEL SECURITY")
	publish := func() error {
		return outbox.Atomically(t.Context(), func(ctx context.Context) error { return events.NewPublisher(outbox).Publish(ctx, newEvents(1)...) })
	}
	require.Error(t, publish(), "no policy lets it write")
	runSQL(t, admin, "CREATE POLICY p ON outbox USING (false) WITH CHECK (true)")
	require.NoError(t, publish())
	check := func(err error) {
		t.Helper()
		require.ErrorIs(t, err, persistence.ErrPrivilege)
		require.ErrorContains(t, err, "table outbox")
	}
	_, err = outbox.ReadWindow(t.Context(), persistence.WindowRead{Limit: 10})
	check(err)
	_, err = outbox.ReadAfter(t.Context(), persistence.Cursor{}, 10)
	check(err)
	_, err = d.RunOnce(t.Context(), 10)
	check(err)
	runSQL(t, admin, "ALTER TABLE outbox DISABLE ROW LEVEL SECURITY")

	lease, err := outbox.Acquire(t.Context(), events.DefaultName, "holder", time.Minute)
	require.NoError(t, err)
	runSQL(t, admin, "ALTER TABLE outbox_subscriptions ENABLE ROW LEVEL SECURITY")
	_, err = outbox.Acquire(t.Context(), events.DefaultName, "holder", time.Minute)
	require.ErrorIs(t, err, persistence.ErrPrivilege)
	require.ErrorContains(t, err, "table outbox_subscriptions")
	require.NoError(t, outbox.Release(t.Context(), lease))
}

// Nobody reads a partition by its name but retention, so a policy there is of no
// concern for others. An owner is exempt unless it is forced.
func TestPostgresPolicyOfAPartitionConcernsRetentionAlone(t *testing.T) {
	t.Parallel()
	dsn := PostgresDSN(t)
	admin := openSQL(t, "pgx", dsn)
	require.NoError(t, sqltx.New(admin, sqltx.Postgres).Migrate(t.Context()))
	name, db := underPolicies(t, admin, dsn)
	runSQL(t, admin, "ALTER TABLE outbox_pmax OWNER TO %s", name)
	runSQL(t, admin, "ALTER TABLE outbox_pmax ENABLE ROW LEVEL SECURITY")
	outbox := sqltx.New(db, sqltx.Postgres)
	_, err := outbox.EnsurePartitions(t.Context(), 1, persistence.RetentionOptions{})
	require.NoError(t, err)
	runSQL(t, admin, "ALTER TABLE outbox_pmax FORCE ROW LEVEL SECURITY")
	publishOne(t, outbox)
	n, err := dispatcherOf(t, outbox).RunOnce(t.Context(), 10)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	v, err := outbox.Validate(t.Context())
	require.Empty(t, problems(t, v, err))
	_, err = outbox.EnsurePartitions(t.Context(), 1, persistence.RetentionOptions{})
	require.ErrorIs(t, err, persistence.ErrPrivilege)
	require.ErrorContains(t, err, "outbox_pmax")
	v, err = outbox.Validate(t.Context(), persistence.RoleRetention)
	require.Contains(t, problems(t, v, err), "rows of table outbox_pmax")
}

// What stands in the place of a table, or runs in the place of a statement, is refused
// by whoever writes as well.
func TestWhatStandsInPlaceOfATableIsRefused(t *testing.T) {
	for _, server := range Servers {
		driver, _, dialect, _ := settingsOf(server)
		for _, c := range map[string][]struct{ do, undo, says string }{
			"postgres": {
				{"CREATE RULE nothing AS ON INSERT TO outbox DO INSTEAD NOTHING", "DROP RULE nothing ON outbox", `rule "nothing" runs in place of statements on table outbox`},
				{"ALTER TABLE outbox_cursors SET UNLOGGED", "ALTER TABLE outbox_cursors SET LOGGED", "table outbox_cursors is unlogged"},
				{"ALTER TABLE outbox RENAME TO hidden; CREATE VIEW outbox AS SELECT * FROM hidden WHERE account_id = ''", "DROP VIEW outbox; ALTER TABLE hidden RENAME TO outbox", "outbox is no table"},
				{"CREATE TEMP TABLE outbox_attempts (LIKE outbox_attempts)", "DROP TABLE pg_temp.outbox_attempts", "a temporary table outbox_attempts"},
			},
			"mysql": {
				{"ALTER TABLE outbox_cursors ENGINE = MyISAM", "ALTER TABLE outbox_cursors ENGINE = InnoDB", "the engine of table outbox_cursors is MyISAM"},
				{"RENAME TABLE outbox_audit TO hidden; CREATE VIEW outbox_audit AS SELECT * FROM hidden", "DROP VIEW outbox_audit; RENAME TABLE hidden TO outbox_audit", "outbox_audit is no table"},
			},
			"sqlite": {
				{"CREATE TEMP TABLE Outbox AS SELECT * FROM outbox", `DROP TABLE temp.Outbox`, "a temporary table Outbox"},
				{"CREATE TEMP VIEW outbox_cursors AS SELECT 1", `DROP VIEW temp.outbox_cursors`, "outbox_cursors is no table"},
				{"ALTER TABLE outbox_audit RENAME TO hidden; CREATE VIEW outbox_audit AS SELECT * FROM hidden", "DROP VIEW outbox_audit; ALTER TABLE hidden RENAME TO outbox_audit", "outbox_audit is no table"},
			},
		}[string(dialect)] {
			t.Run(server.Name+" "+c.says, func(t *testing.T) {
				t.Parallel()
				db := openSQL(t, driver, server.New(t))
				db.SetMaxOpenConns(1)
				require.NoError(t, sqltx.New(db, dialect).Migrate(t.Context()))
				for _, q := range strings.Split(c.do, "; ") {
					runSQL(t, db, "%s", q)
				}
				outbox := sqltx.New(db, dialect)
				check := func(err error) {
					t.Helper()
					require.ErrorIs(t, err, persistence.ErrSchema)
					require.ErrorContains(t, err, c.says)
				}
				check(outbox.Atomically(t.Context(), func(ctx context.Context) error {
					return events.NewPublisher(outbox).Publish(ctx, newEvents(1)...)
				}))
				_, err := dispatcherOf(t, outbox).RunOnce(t.Context(), 1)
				check(err)
				v, err := outbox.Validate(t.Context())
				check(err)
				require.Contains(t, problems(t, v, err), c.says)
				for _, q := range strings.Split(c.undo, "; ") {
					runSQL(t, db, "%s", q)
				}
				require.NoError(t, outbox.Atomically(t.Context(), func(ctx context.Context) error {
					return events.NewPublisher(outbox).Publish(ctx, newEvents(1)...)
				}))
			})
		}
	}
}

// Each table that the migrations make is looked at.
func TestAllTablesAreLookedAt(t *testing.T) {
	made := regexp.MustCompile(`CREATE TABLE (?:IF NOT EXISTS )?(?:\{schema\})?"?\{prefix\}(\w+)`)
	for name, d := range dialects {
		text := d.Text("DescribeTables", schema.Naming{})
		all := map[string]bool{}
		migrations, err := schema.Files.ReadDir(name)
		require.NoError(t, err)
		for _, file := range migrations {
			content, err := schema.Files.ReadFile(name + "/" + file.Name())
			require.NoError(t, err)
			for _, m := range made.FindAllStringSubmatch(string(content), -1) {
				all[m[1]] = true
			}
		}
		require.GreaterOrEqual(t, len(all), len(outboxTables))
		for table := range all {
			require.Regexp(t, `['"]`+table+`['"]`, text, "%s: %s", name, table)
		}
	}
}
