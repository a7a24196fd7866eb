package matrix

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"
	gormmysql "gorm.io/driver/mysql"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/gormtx"
	"github.com/onward-go/outbox/internal/sqlstore"
	"github.com/onward-go/outbox/internal/stdsql"
	"github.com/onward-go/outbox/persistence"
)

// problems returns what a validation has found, a line each, and checks that its
// error says the same.
func problems(t *testing.T, v persistence.Validation, err error) string {
	t.Helper()
	failed := false
	for _, f := range v.Findings {
		require.NotEmpty(t, f.Problem)
		require.NotEmpty(t, f.Remedy)
		if f.Severity == persistence.SeverityError {
			failed = true
			require.ErrorIs(t, err, f.Kind)
			require.ErrorContains(t, err, f.Problem)
		}
	}
	require.Equal(t, failed, err != nil, err)
	return v.String()
}

func TestMySQLFindingsComeAtOnce(t *testing.T) {
	onMySQL(t, func(t *testing.T, dsn string) {
		v, err := gormtx.New(Open(t, gormmysql.Open(dsn+"?binlog_format=%27STATEMENT%27&autocommit=0&charset=latin1"), &gorm.Config{Logger: logger.Discard})).Validate(t.Context())
		text := problems(t, v, err)
		for _, want := range []string{"binlog_format is STATEMENT", "autocommit is off", "character_set_client is latin1", "table outbox is missing: apply the migrations"} {
			require.Contains(t, text, want)
		}
		require.ErrorIs(t, err, persistence.ErrUnsupported)
		require.ErrorIs(t, err, persistence.ErrSchema)
		require.Regexp(t, `^(MySQL|MariaDB) \d`, v.Server)
	})
}

// Under READ UNCOMMITTED a reader sees what rolls back.
func TestMySQLReadUncommittedIsRefused(t *testing.T) {
	onMySQL(t, func(t *testing.T, dsn string) {
		require.NoError(t, gormtx.Migrate(t.Context(), Open(t, gormmysql.Open(dsn), &gorm.Config{Logger: logger.Discard})))
		variable := "transaction_isolation"
		if strings.Contains(t.Name(), "mariadb") {
			variable = "tx_isolation"
		}
		outbox := gormtx.New(Open(t, gormmysql.Open(dsn+"?"+variable+"=%27READ-UNCOMMITTED%27"), &gorm.Config{Logger: logger.Discard}))
		_, err := outbox.ReadAfter(t.Context(), persistence.Cursor{}, 1)
		require.ErrorIs(t, err, persistence.ErrUnsupported)
		v, err := outbox.Validate(t.Context())
		require.Contains(t, problems(t, v, err), "READ UNCOMMITTED")
		v, err = gormtx.New(Open(t, gormmysql.Open(dsn+"?"+variable+"=%27SERIALIZABLE%27"), &gorm.Config{Logger: logger.Discard})).Validate(t.Context())
		require.Contains(t, problems(t, v, err), "warning: the session's isolation is SERIALIZABLE")
	})
}

// validated validates an outbox on PostgreSQL whose server answers otherwise.
func validated(t *testing.T, db *gorm.DB, old, new string) string {
	t.Helper()
	pool, err := db.DB()
	require.NoError(t, err)
	store := sqlstore.New(sqlstore.Config{
		Database: pool, Dialect: sqlstore.Postgres, MaxPayload: 1, MaxConnections: func() int { return 0 },
		Pool: rewriting{stdsql.Pool{DB: pool}, func(q string) string { return strings.ReplaceAll(q, old, new) }},
	})
	v, err := store.Validate(t.Context())
	return problems(t, v, err)
}

func TestPostgresFindings(t *testing.T) {
	config, err := pgx.ParseConfig(PostgresDSN(t))
	require.NoError(t, err)
	db := Open(t, postgres.New(postgres.Config{Conn: stdlib.OpenDB(*config)}), &gorm.Config{Logger: logger.Discard})
	outbox := gormtx.New(db)
	require.NoError(t, outbox.Migrate(t.Context()))
	require.Empty(t, validated(t, db, "", ""))
	require.Contains(t, validated(t, db, "NOT pg_is_in_recovery()", "false"), "a standby answers")
	require.Contains(t, validated(t, db, "current_setting('transaction_read_only')", "'on'"), "the session is read-only")
	require.Contains(t, validated(t, db, "SELECT clock_timestamp(),", "SELECT clock_timestamp() + interval '1 hour',"), "warning: the clocks of this process and of the database are 1h0m0")
	require.Contains(t, validated(t, db, "$1::timestamptz", "$1::timestamptz + interval '1 hour'"), "a time comes back changed")
	require.Contains(t, validated(t, db, "version()", "'PostgreSQL 14.1'"), "PostgreSQL 14.1")

	limited := config.Copy()
	limited.RuntimeParams["default_transaction_read_only"] = "on"
	v, err := gormtx.New(Open(t, postgres.New(postgres.Config{Conn: stdlib.OpenDB(*limited)}), &gorm.Config{Logger: logger.Discard})).Validate(t.Context())
	require.Contains(t, problems(t, v, err), "the session is read-only")
	require.Len(t, v.Findings, 1, "and what the roles may do is judged all the same")

	require.NoError(t, outbox.Create(t.Context(), "early", persistence.Cursor{CreatedTime: time.Now().Add(time.Hour)}))
	v, err = outbox.Validate(t.Context())
	require.Regexp(t, `^warning: the cursor of dispatcher "early" is (1h0m0s|59m59s) ahead`, problems(t, v, err))
	v, err = outbox.Validate(t.Context(), persistence.RoleProducer)
	require.Empty(t, problems(t, v, err), "it is of no concern for a producer")

	require.NoError(t, db.Exec("UPDATE outbox_schema SET version = 99 WHERE version > 0").Error)
	v, err = gormtx.New(db).Validate(t.Context())
	require.Contains(t, problems(t, v, err), "version 99, this library knows 1: upgrade the library")
	require.ErrorIs(t, err, persistence.ErrSchema)
}

func TestAValidationWarnsBeforePartitionsEnd(t *testing.T) {
	onPartitions(t, func(t *testing.T, _ Server, db *gorm.DB) {
		a := newAged(t, db, "", startOfMonth(0), startOfMonth(1))
		v, err := a.Validate(t.Context())
		text := problems(t, v, err)
		for _, table := range []string{"outbox", "outbox_idempotency"} {
			require.Contains(t, text, "warning: table "+table+" has partitions up to "+startOfMonth(1).Format(time.DateOnly))
		}
		_, err = a.retain(t.Context(), 3650*day)
		require.NoError(t, err)
		v, err = a.Validate(t.Context())
		require.Empty(t, problems(t, v, err))
	})
}

// userOf makes a user without privileges, and returns how to connect as it, and a
// function that grants.
func userOf(t *testing.T, server Server, db *gorm.DB, dsn string) (gorm.Dialector, func(privileges, table string)) {
	t.Helper()
	run := func(format string, args ...any) {
		t.Helper()
		require.NoError(t, db.WithContext(context.Background()).Exec(fmt.Sprintf(format, args...)).Error)
	}
	name := strings.ToLower("u" + events.NewID()[24:])
	if db.Name() == "postgres" {
		run("CREATE ROLE %s LOGIN PASSWORD 'secret'", name)
		t.Cleanup(func() { run("DROP OWNED BY %s", name); run("DROP ROLE %s", name) })
		u, err := url.Parse(dsn)
		require.NoError(t, err)
		u.User = url.UserPassword(name, "secret")
		return postgres.Open(u.String()), func(privileges, table string) { run("GRANT %s ON %s TO %s", privileges, table, name) }
	}
	config, err := mysql.ParseDSN(dsn)
	require.NoError(t, err)
	run("CREATE USER '%s'@'%%' IDENTIFIED BY 'secret'", name)
	t.Cleanup(func() { run("DROP USER '%s'@'%%'", name) })
	database := config.DBName
	run("GRANT DELETE ON %s.outbox_schema TO '%s'@'%%'", database, name) // to be let in
	config.User, config.Passwd = name, "secret"
	return gormmysql.Open(config.FormatDSN()), func(privileges, table string) {
		run("GRANT %s ON %s.%s TO '%s'@'%%'", privileges, database, table, name)
	}
}

// Who lacks a privilege is told each, and who has got what was told does the work.
func TestAValidationFindsMissingPrivileges(t *testing.T) {
	for _, server := range Servers {
		if server.Again || server.Kind == nil {
			continue
		}
		t.Run(server.Name, func(t *testing.T) {
			t.Parallel()
			dsn := server.New(t)
			db := Open(t, server.Open(dsn), &gorm.Config{Logger: logger.Discard})
			require.NoError(t, gormtx.Migrate(t.Context(), db))
			dialector, grant := userOf(t, server, db, dsn)
			user := Open(t, dialector, &gorm.Config{Logger: logger.Discard})
			pool, err := user.DB()
			require.NoError(t, err)
			outbox := gormtx.New(user)
			check := func(roles ...persistence.Role) (string, error) {
				t.Helper()
				pool.SetMaxIdleConns(0) // MySQL looks when a session begins
				pool.SetMaxIdleConns(2)
				v, err := gormtx.New(user).Validate(t.Context(), roles...)
				return problems(t, v, err), err
			}
			text, err := check(persistence.RoleProducer)
			require.ErrorIs(t, err, persistence.ErrPrivilege)
			for _, want := range []string{"read the version of the tables", "publish", "reserve dedup keys", "grant what the role producer needs"} {
				require.Contains(t, text, want)
			}
			grant("SELECT", "outbox_schema")
			grant("INSERT", "outbox")
			if user.Name() == "mysql" {
				grant("SELECT", "outbox_fence")
				if text, err := check(persistence.RoleProducer); err != nil {
					require.Contains(t, text, "outbox_fence") // MariaDB wants more for a lock
					grant("UPDATE", "outbox_fence")
				}
			}
			text, err = check(persistence.RoleProducer)
			require.NoError(t, err)
			require.Regexp(t, "^warning: the user may not reserve dedup keys.*if its events have dedup keys\n", text)
			grant("SELECT, INSERT, DELETE", "outbox_dedup")
			text, err = check(persistence.RoleProducer)
			require.NoError(t, err)
			require.Empty(t, text)
			require.NoError(t, outbox.Atomically(t.Context(), func(ctx context.Context) error {
				return events.NewPublisher(outbox).Publish(ctx, events.Event{Type: "t", AggregateType: "a", AggregateID: "1", DedupKey: "k"})
			}))
			_, err = outbox.ReadWindow(t.Context(), persistence.WindowRead{Limit: 1})
			require.Error(t, err, "a producer cannot read events")

			text, err = check(persistence.RoleDispatcher)
			require.ErrorIs(t, err, persistence.ErrPrivilege)
			for _, want := range []string{"read events", "take the lease", "write markers", "record failures", "write dead letters"} {
				require.Contains(t, text, want)
			}
			require.NotContains(t, text, "publish")
			grant("SELECT", "outbox")
			grant("SELECT, INSERT", "outbox_idempotency")
			for _, table := range []string{"outbox_cursors", "outbox_subscriptions", "outbox_audit", "outbox_attempts", "outbox_dead_letters"} {
				grant("SELECT, INSERT, UPDATE, DELETE", table)
			}
			if user.Name() == "mysql" {
				grant("UPDATE", "outbox_fence")
			}
			text, err = check(persistence.RoleDispatcher)
			require.NoError(t, err)
			require.Empty(t, text)
			d := events.NewDispatcher(outbox, outbox, outbox, outbox, events.WithMaxAttempts(1))
			require.NoError(t, d.Subscribe("t", "h", func(context.Context, events.Event) error { return errors.New("broken") }))
			for err = nil; !errors.Is(err, events.ErrDeadLettered); { // the safe mark may follow in steps
				require.NoError(t, err)
				_, err = d.RunOnce(t.Context(), 1)
			}
			_, err = d.Status(t.Context())
			require.NoError(t, err)

			text, err = check(persistence.RoleRetention)
			require.ErrorIs(t, err, persistence.ErrPrivilege)
			require.Contains(t, text, "make and drop partitions")
		})
	}
}
