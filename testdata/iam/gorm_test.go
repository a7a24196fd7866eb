package iam_test

import (
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/onward-go/outbox/gormtx"
	"github.com/onward-go/outbox/testdata/iam/gormiam"
	"github.com/onward-go/outbox/testdata/matrix"
)

func openGorm(t testing.TB, dialector gorm.Dialector) fixture {
	t.Helper()
	db := matrix.Open(t, dialector, &gorm.Config{Logger: logger.Discard})
	pool, err := db.DB()
	require.NoError(t, err)
	outbox := gormtx.New(db)
	require.NoError(t, outbox.Migrate(t.Context()))
	require.NoError(t, gormiam.Migrate(t.Context(), db))
	return fixture{
		ports:  gormiam.Wire(db, outbox),
		outbox: outbox,
		table: func(t testing.TB) ([]string, []map[string]string) {
			t.Helper()
			return query(t, pool, "SELECT * FROM outbox ORDER BY created_time, id")
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
