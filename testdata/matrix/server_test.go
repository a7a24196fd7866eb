package matrix

import (
	"context"
	"regexp"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"
	gormmysql "gorm.io/driver/mysql"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/gormtx"
	"github.com/onward-go/outbox/internal/sqlstore"
	"github.com/onward-go/outbox/internal/stdsql"
	"github.com/onward-go/outbox/persistence"
	"github.com/onward-go/outbox/testdata/servers"
)

var dialects = map[string]*sqlstore.Dialect{"postgres": sqlstore.Postgres, "mysql": sqlstore.MySQL, "sqlite": sqlstore.SQLite}

func TestServersOfTheMatrixAreSupported(t *testing.T) {
	want := regexp.MustCompile(`^(PostgreSQL|MySQL|MariaDB|SQLite) [1-9]\d*(\.\d+){0,2}$`)
	for _, server := range Servers {
		t.Run(server.Name, func(t *testing.T) {
			db := Open(t, server.Gorm(t), &gorm.Config{Logger: logger.Discard})
			pool, err := db.DB()
			require.NoError(t, err)
			name, err := dialects[db.Name()].CheckServer(t.Context(), stdsql.Pool{DB: pool})
			require.NoError(t, err)
			require.Regexp(t, want, name)
			require.Contains(t, strings.ToLower(name), strings.TrimSuffix(server.Name, "15"))
			t.Log(name)
		})
	}
}

// requireUnsupported makes sure that the server is refused by each way in,
// before anything is written, and that the user's transaction goes on.
func requireUnsupported(t *testing.T, db *gorm.DB, says string) {
	t.Helper()
	outbox := gormtx.New(db)
	check := func(err error) {
		t.Helper()
		require.ErrorIs(t, err, persistence.ErrUnsupported)
		require.ErrorContains(t, err, says)
	}
	check(outbox.Migrate(t.Context()))
	_, err := outbox.ReadAfter(t.Context(), persistence.Cursor{}, 1)
	check(err)
	_, err = events.NewDispatcher(outbox, outbox, outbox, outbox).RunOnce(t.Context(), 1)
	check(err)
	require.NoError(t, outbox.Atomically(t.Context(), func(ctx context.Context) error {
		check(events.NewPublisher(outbox).Publish(ctx, newEvents(1)...))
		return gormtx.Tx(ctx).Exec("DELETE FROM untouched").Error
	}))
	var n int64
	require.NoError(t, db.Raw("SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE()").Scan(&n).Error)
	require.EqualValues(t, 1, n, "nothing is made but the test's own table")
}

func TestMySQLThatIsSetUpOtherwiseIsRefused(t *testing.T) {
	onMySQL(t, func(t *testing.T, dsn string) {
		require.NoError(t, Open(t, gormmysql.Open(dsn), &gorm.Config{Logger: logger.Discard}).
			Exec("CREATE TABLE untouched (id INT) ENGINE=InnoDB").Error)
		for params, says := range map[string]string{
			"?binlog_format=%27STATEMENT%27":   "binlog_format is STATEMENT",
			"?charset=latin1":                  "charset=utf8mb4",
			"?charset=utf8":                    "charset=utf8mb4", // three bytes a character
			"?charset=binary":                  "charset=utf8mb4",
			"?character_set_connection=latin1": "charset=utf8mb4",
			"?autocommit=0":                    "autocommit is off",
		} {
			requireUnsupported(t, Open(t, gormmysql.Open(dsn+params), &gorm.Config{Logger: logger.Discard}), says)
		}
	})
}

func TestMySQLGroupWithSeveralPrimariesIsRefused(t *testing.T) {
	t.Parallel()
	server := servers.Private(t, servers.MySQL)
	db := Open(t, gormmysql.Open(servers.CreateDatabase(t, server)), &gorm.Config{Logger: logger.Discard})
	for _, statement := range []string{
		"CREATE TABLE untouched (id INT) ENGINE=InnoDB",
		"INSTALL PLUGIN group_replication SONAME 'group_replication.so'",
		"SET GLOBAL group_replication_group_name = 'aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa'",
		"SET GLOBAL group_replication_single_primary_mode = OFF",
	} {
		require.NoError(t, db.Exec(statement).Error)
	}
	requireUnsupported(t, db, "single_primary_mode")
	require.NoError(t, db.Exec("SET GLOBAL group_replication_single_primary_mode = ON").Error)
	require.NoError(t, gormtx.Migrate(t.Context(), db))
}

// A server that we do not have is one of ours that answers otherwise.
func TestServersThatAnswerOtherwiseAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		kind     *servers.Kind
		old, new string
		says     string
	}{
		"CockroachDB":   {servers.Postgres, "version()", "'CockroachDB CCL v24.1.0'", "CockroachDB"},
		"PostgreSQL 14": {servers.Postgres, "version()", "'PostgreSQL 14.1 on x86_64'", "PostgreSQL 14.1"},
		"TiDB":          {servers.MySQL, "\nSHOW VARIABLES", "SELECT * FROM (SELECT 'version' AS Variable_name, '8.0.11-TiDB-v8.5.0') AS v", "TiDB"},
		"Galera": {servers.MariaDB, "\nSHOW VARIABLES", "SELECT * FROM (SELECT 'version' AS Variable_name, '10.11.18-MariaDB' UNION ALL " +
			"SELECT 'sql_select_limit', '18446744073709551615' UNION ALL SELECT 'wsrep_on', 'ON' UNION ALL SELECT 'wsrep_provider', '/usr/lib/galera/libgalera_smm.so') AS v", "Galera"},
		"MySQL with sysdate-is-now":   {servers.MySQL, "SYSDATE(6)", "NOW(6)", "sysdate-is-now"},
		"MariaDB with sysdate-is-now": {servers.MariaDB, "SYSDATE(6)", "NOW(6)", "sysdate-is-now"},
	} {
		t.Run(name, func(t *testing.T) {
			var server Server
			for _, s := range Servers {
				if s.Name == c.kind.Name {
					server = s
				}
			}
			db := Open(t, server.Gorm(t), &gorm.Config{Logger: logger.Discard})
			require.NoError(t, gormtx.Migrate(t.Context(), db))
			pool, err := db.DB()
			require.NoError(t, err)
			for _, as := range []struct {
				rewrite func(string) string
				refused bool
			}{
				{func(q string) string { return q }, false},
				{func(q string) string { return strings.ReplaceAll(q, c.old, c.new) }, true},
			} {
				store := sqlstore.New(sqlstore.Config{
					Database: pool, Dialect: dialects[db.Name()], MaxPayload: 1,
					Pool: rewriting{stdsql.Pool{DB: pool}, as.rewrite}, MaxConnections: func() int { return 0 },
				})
				_, err := store.ReadAfter(t.Context(), persistence.Cursor{}, 1)
				if !as.refused {
					require.NoError(t, err)
					continue
				}
				for _, err := range []error{err, store.Migrate(t.Context())} {
					require.ErrorIs(t, err, persistence.ErrUnsupported)
					require.ErrorContains(t, err, c.says)
				}
			}
		})
	}
}

// Where the format of the binary log is MIXED, events are logged as rows, since
// SYSDATE is not safe to repeat.
func TestMySQLMixedBinaryLogHoldsEventsAsRows(t *testing.T) {
	onMySQL(t, func(t *testing.T, dsn string) {
		db := Open(t, gormmysql.Open(dsn+"?binlog_format=%27MIXED%27"), &gorm.Config{Logger: logger.Discard})
		outbox := gormtx.New(db)
		require.NoError(t, outbox.Migrate(t.Context()))
		require.NoError(t, db.Exec("CREATE TABLE control (id INT) ENGINE=InnoDB").Error)
		require.NoError(t, outbox.Atomically(t.Context(), func(ctx context.Context) error {
			if err := gormtx.Tx(ctx).Exec("INSERT INTO control VALUES (1)").Error; err != nil {
				return err
			}
			if err := events.NewPublisher(outbox).Publish(ctx, newEvents(1)...); err != nil {
				return err
			}
			return events.NewPublisher(outbox).Publish(ctx, newEvents(2)...)
		}))
		config, err := mysql.ParseDSN(dsn)
		require.NoError(t, err)
		rows, statements := logged(t, db, config.DBName)
		require.Equal(t, 2, rows)
		require.Equal(t, 1, statements, "the log is mixed")
	})
}

// logged counts what the newest binary log has of the database: rows of the
// outbox, and INSERT statements.
func logged(t *testing.T, db *gorm.DB, database string) (rows, statements int) {
	var logs []struct {
		LogName string `gorm:"column:Log_name"`
	}
	require.NoError(t, db.Raw("SHOW BINARY LOGS").Scan(&logs).Error)
	var entries []struct {
		Type string `gorm:"column:Event_type"`
		Info string `gorm:"column:Info"`
	}
	require.NoError(t, db.Raw("SHOW BINLOG EVENTS IN '"+logs[len(logs)-1].LogName+"'").Scan(&entries).Error)
	for _, e := range entries {
		if !strings.Contains(e.Info, database) {
			continue
		}
		if e.Type == "Table_map" && strings.Contains(e.Info, database+".outbox)") {
			rows++
		}
		if strings.Contains(e.Info, "INSERT INTO control") || strings.Contains(e.Info, "INSERT INTO outbox (") {
			statements++
		}
	}
	return rows, statements
}
