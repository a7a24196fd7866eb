package matrix

import (
	"database/sql"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	_ "github.com/lib/pq" // the driver "postgres"
	"github.com/stretchr/testify/require"
	"gorm.io/driver/mysql"
	"gorm.io/driver/postgres"
	"gorm.io/driver/sqlite"
	"gorm.io/gorm"
	_ "modernc.org/sqlite" // the cgo-free driver

	"github.com/onward-go/outbox/testdata/servers"
)

// Server is a kind of database, as the faces connect to it.
type Server struct {
	Name string
	// Kind is the server that it runs on, nil where it is embedded.
	Kind *servers.Kind
	// New returns the DSN of a new, empty database, which goes when the test
	// ends, and Open a way to connect GORM to it.
	New  func(t testing.TB) (dsn string)
	Open func(dsn string) gorm.Dialector
	// Modes are other ways to connect to a database there.
	Modes map[string]Mode
	// Drivers are further drivers, for faces that do not come with one.
	Drivers map[string]Mode
	// Pgx says that pgxtx connects to it.
	Pgx bool
	// Again says that another server of the same kind has all the variants.
	Again bool
	// Schemas says that it has schemas beside the default one.
	Schemas bool
	// Partitions says that its outbox table has partitions.
	Partitions bool
	// OneWriter says that a transaction that writes waits for any other one.
	OneWriter bool
}

// Mode is a way to connect.
type Mode struct {
	Open func(t testing.TB, dsn string) gorm.Dialector
	// Retention says that retention is under test as well. Its DDL takes long,
	// so it is not where a mode changes nothing but how values are sent, or how
	// transactions see each other.
	Retention bool
}

// Gorm returns a way to connect GORM to a new, empty database.
func (s Server) Gorm(t testing.TB) gorm.Dialector {
	t.Helper()
	return s.Open(s.New(t))
}

// Servers are the databases that the library supports.
var Servers = []Server{
	{
		Name:      "sqlite",
		OneWriter: true,
		New: func(t testing.TB) string {
			return "file:" + filepath.Join(t.TempDir(), "outbox.db") +
				"?_pragma=busy_timeout(10000)&_pragma=journal_mode(wal)&_pragma=synchronous(off)&_pragma=foreign_keys(1)"
		},
		Open: func(dsn string) gorm.Dialector { return sqlite.Dialector{DriverName: "sqlite", DSN: dsn} },
	},
	postgresServer(servers.Postgres, false),
	postgresServer(servers.Postgres15, true),
	mysqlServer(servers.MySQL, "transaction_isolation", nil),
	// Newer versions have it on, so that a lock on a row that has changed since
	// the snapshot is an error.
	mysqlServer(servers.MariaDB, "tx_isolation", map[string]string{
		"snapshot isolation":    "?tx_isolation=%27REPEATABLE-READ%27&innodb_snapshot_isolation=ON",
		"no snapshot isolation": "?tx_isolation=%27REPEATABLE-READ%27&innodb_snapshot_isolation=OFF",
	}),
}

// postgresServer is PostgreSQL, with the modes of its driver.
func postgresServer(kind *servers.Kind, again bool) Server {
	s := Server{
		Name:       kind.Name,
		Kind:       kind,
		New:        func(t testing.TB) string { return newDatabase(t, kind) },
		Open:       postgres.Open,
		Pgx:        true,
		Again:      again,
		Schemas:    true,
		Partitions: true,
	}
	s.Modes = map[string]Mode{
		"simple protocol": {Retention: true, Open: func(_ testing.TB, dsn string) gorm.Dialector {
			return postgres.New(postgres.Config{DSN: dsn, PreferSimpleProtocol: true})
		}},
		// How pgx is configured behind a pooler that hands out a server
		// connection for a transaction at a time.
		"no prepared statements": {Retention: true, Open: func(t testing.TB, dsn string) gorm.Dialector {
			config, err := pgx.ParseConfig(dsn)
			require.NoError(t, err)
			config.DefaultQueryExecMode = pgx.QueryExecModeExec
			config.StatementCacheCapacity = 0
			return postgres.New(postgres.Config{Conn: stdlib.OpenDB(*config)})
		}},
		"described statements": {Open: func(_ testing.TB, dsn string) gorm.Dialector {
			return postgres.Open(dsn + "&default_query_exec_mode=cache_describe")
		}},
		// A prepared statement would be missing on the next server connection,
		// so pgx may not keep any.
		"transaction pooler": {Retention: true, Open: func(t testing.TB, dsn string) gorm.Dialector {
			return postgres.Open(servers.PgBouncer(t, dsn) + "&default_query_exec_mode=exec")
		}},
	}
	s.Drivers = map[string]Mode{
		"lib/pq": {Retention: true, Open: func(t testing.TB, dsn string) gorm.Dialector {
			pool, err := sql.Open("postgres", dsn)
			require.NoError(t, err)
			return postgres.New(postgres.Config{Conn: pool})
		}},
	}
	return s
}

// mysqlServer is MySQL or MariaDB. The modes are what a DSN may change under
// us; isolation is the name of its system variable, and more are parameters of
// modes that only this server has.
func mysqlServer(kind *servers.Kind, isolation string, more map[string]string) Server {
	with := func(params string) func(testing.TB, string) gorm.Dialector {
		return func(_ testing.TB, dsn string) gorm.Dialector { return mysql.Open(dsn + params) }
	}
	s := Server{
		Name:       kind.Name,
		Kind:       kind,
		New:        func(t testing.TB) string { return newDatabase(t, kind) },
		Open:       mysql.Open,
		Partitions: true,
		Modes: map[string]Mode{
			"read committed, interpolated, found rows": {Open: with("?interpolateParams=true&clientFoundRows=true&" + isolation + "=%27READ-COMMITTED%27")},
			"local times, lax SQL mode":                {Open: with("?parseTime=true&loc=Asia%2FTokyo&time_zone=%27-03%3A30%27&sql_mode=%27%27"), Retention: true},
		},
	}
	for name, params := range more {
		s.Modes[name] = Mode{Open: with(params)}
	}
	return s
}

// PostgresDSN returns the DSN of a new, empty database.
func PostgresDSN(t testing.TB) string {
	t.Helper()
	return newDatabase(t, servers.Postgres)
}

// newDatabase returns the DSN of a new, empty database on the server of that
// kind. It is dropped when the test ends.
func newDatabase(t testing.TB, kind *servers.Kind) string {
	t.Helper()
	return servers.CreateDatabase(t, servers.Get(t, kind))
}

// Open connects GORM and closes the pool at the end of the test.
func Open(t testing.TB, dialector gorm.Dialector, config *gorm.Config) *gorm.DB {
	t.Helper()
	db, err := gorm.Open(dialector, config)
	require.NoError(t, err)
	sqlDB, err := db.DB()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, sqlDB.Close()) })
	return db
}
