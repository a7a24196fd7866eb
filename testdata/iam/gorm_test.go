package iam_test

import (
	"database/sql"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"gorm.io/driver/postgres"
	"gorm.io/driver/sqlite"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
	_ "modernc.org/sqlite" // the cgo-free driver

	"github.com/onward-go/outbox/gormtx"
	"github.com/onward-go/outbox/testdata/iam/gormiam"
	"github.com/onward-go/outbox/testdata/servers"
)

func openSQLite(t testing.TB) fixture {
	return openGorm(t, sqlite.Dialector{
		DriverName: "sqlite",
		DSN:        "file:" + filepath.Join(t.TempDir(), "iam.db") + "?_pragma=busy_timeout(10000)&_pragma=journal_mode(wal)",
	})
}

func openPostgres(t testing.TB) fixture {
	return openGorm(t, postgres.Open(servers.CreateDatabase(t, servers.Get(t, servers.Postgres))))
}

func openGorm(t testing.TB, dialector gorm.Dialector) fixture {
	t.Helper()
	db, err := gorm.Open(dialector, &gorm.Config{Logger: logger.Discard})
	require.NoError(t, err)
	sqlDB, err := db.DB()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, sqlDB.Close()) })

	outbox := gormtx.New(db)
	require.NoError(t, outbox.Migrate(t.Context()))
	require.NoError(t, gormiam.Migrate(t.Context(), db))
	return fixture{
		ports:  gormiam.Wire(db, outbox),
		outbox: outbox,
		table: func(t testing.TB) ([]string, []map[string]string) {
			t.Helper()
			return query(t, sqlDB, "SELECT * FROM outbox ORDER BY created_time, id")
		},
	}
}

// query returns columns and rows past both GORM and the outbox.
func query(t testing.TB, db *sql.DB, text string) (columns []string, found []map[string]string) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), text)
	require.NoError(t, err)
	defer rows.Close()
	columns, err = rows.Columns()
	require.NoError(t, err)
	for rows.Next() {
		values := make([]string, len(columns))
		targets := make([]any, len(columns))
		for i := range values {
			targets[i] = &values[i]
		}
		require.NoError(t, rows.Scan(targets...))
		row := map[string]string{}
		for i, column := range columns {
			row[column] = values[i]
		}
		found = append(found, row)
	}
	require.NoError(t, rows.Err())
	return columns, found
}
