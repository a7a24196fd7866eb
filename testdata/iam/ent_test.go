package iam_test

import (
	"testing"
	"time"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/onward-go/outbox/sqltx"
	"github.com/onward-go/outbox/testdata/iam/entiam"
	"github.com/onward-go/outbox/testdata/iam/entiam/ent"
	entoutbox "github.com/onward-go/outbox/testdata/iam/entiam/ent/outbox"
	"github.com/onward-go/outbox/testdata/matrix"
)

// entDialects are ent's names of the databases.
var entDialects = map[string]string{
	"postgres": dialect.Postgres,
	"mysql":    dialect.MySQL,
	"sqlite":   dialect.SQLite,
}

// entDSN returns the DSN of a new, empty database for ent, whose transactions
// begin as the driver does it: on SQLite, the lock of the one writer has to be
// asked for.
func entDSN(t testing.TB, server matrix.Server) string {
	dsn := server.New(t)
	if server.OneWriter {
		dsn += "&_txlock=immediate"
	}
	return dsn
}

// entDatabase is a database as ent sees it.
type entDatabase struct {
	*entsql.Driver
	client *ent.Client
	outbox *sqltx.Outbox
}

// openEntDatabase uses the pool that GORM would have.
func openEntDatabase(t testing.TB, dialector gorm.Dialector) entDatabase {
	t.Helper()
	pool, err := matrix.Open(t, dialector, &gorm.Config{Logger: logger.Discard}).DB()
	require.NoError(t, err)
	outbox := sqltx.New(pool, sqltx.Dialect(dialector.Name()))
	require.NoError(t, outbox.Migrate(t.Context()))
	driver := entsql.OpenDB(entDialects[dialector.Name()], pool)
	return entDatabase{driver, ent.NewClient(ent.Driver(driver)), outbox}
}

func openEnt(t testing.TB, dialector gorm.Dialector) fixture {
	t.Helper()
	d := openEntDatabase(t, dialector)
	require.NoError(t, entiam.Migrate(t.Context(), d.client))
	return fixture{
		ports:  entiam.Wire(d.client, d.Dialect(), d.outbox),
		outbox: d.outbox,
		table: func(t testing.TB) (columns []string, rows []map[string]string) {
			t.Helper()
			found, err := d.client.Outbox.Query().Order(entoutbox.ByCreatedTime(), entoutbox.ByID()).All(t.Context())
			require.NoError(t, err)
			for _, r := range found {
				rows = append(rows, map[string]string{
					"id":             r.ID,
					"account_id":     r.AccountID,
					"aggregate_type": r.AggregateType,
					"aggregate_id":   r.AggregateID,
					"event_type":     r.EventType,
					"payload":        string(r.Payload),
					"created_time":   r.CreatedTime.Format(time.RFC3339Nano),
				})
			}
			return entoutbox.Columns, rows
		},
	}
}
