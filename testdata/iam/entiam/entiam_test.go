package entiam_test

import (
	"database/sql"
	"testing"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/onward-go/outbox/sqltx"
	"github.com/onward-go/outbox/testdata/iam/entiam"
	"github.com/onward-go/outbox/testdata/iam/entiam/ent"
	"github.com/onward-go/outbox/testdata/matrix"
	"github.com/onward-go/outbox/testdata/servers"
)

func TestMain(m *testing.M) { servers.Main(m) }

// database is an empty database with all tables, as ent and the outbox see it.
type database struct {
	pool    *sql.DB
	dialect string // ent's name of it
	client  *ent.Client
	outbox  *sqltx.Outbox
}

// everywhere runs a test on each database, through each driver.
func everywhere(t *testing.T, test func(t *testing.T, db database)) {
	for _, server := range matrix.Servers {
		open := map[string]func(t testing.TB, dsn string) gorm.Dialector{
			"": func(_ testing.TB, dsn string) gorm.Dialector { return server.Open(dsn) },
		}
		for name, driver := range server.Drivers {
			open["/"+name] = driver.Open
		}
		for name, open := range open {
			t.Run(server.Name+name, func(t *testing.T) {
				t.Parallel()
				dsn := server.New(t)
				if server.OneWriter {
					dsn += "&_txlock=immediate"
				}
				test(t, openDatabase(t, open(t, dsn)))
			})
		}
	}
}

// openDatabase uses the pool that GORM would have.
func openDatabase(t testing.TB, dialector gorm.Dialector) database {
	t.Helper()
	pool, err := matrix.Open(t, dialector, &gorm.Config{Logger: logger.Discard}).DB()
	require.NoError(t, err)
	name := dialector.Name()
	outbox := sqltx.New(pool, sqltx.Dialect(name))
	require.NoError(t, outbox.Migrate(t.Context()))
	if name == string(sqltx.SQLite) {
		name = dialect.SQLite
	}
	db := database{pool: pool, dialect: name, outbox: outbox}
	db.client = ent.NewClient(db.driver())
	require.NoError(t, entiam.Migrate(t.Context(), db.client))
	return db
}

// driver is the option of a client of its own.
func (db database) driver() ent.Option { return ent.Driver(entsql.OpenDB(db.dialect, db.pool)) }
