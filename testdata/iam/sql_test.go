package iam_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/onward-go/outbox/sqltx"
	"github.com/onward-go/outbox/testdata/iam/sqliam"
	"github.com/onward-go/outbox/testdata/matrix"
)

// openSQL uses the pool that GORM would have.
func openSQL(t testing.TB, dialector gorm.Dialector) fixture {
	t.Helper()
	pool, err := matrix.Open(t, dialector, &gorm.Config{Logger: logger.Discard}).DB()
	require.NoError(t, err)
	dialect := sqltx.Dialect(dialector.Name())
	outbox := sqltx.New(pool, dialect)
	require.NoError(t, outbox.Migrate(t.Context()))
	require.NoError(t, sqliam.Migrate(t.Context(), pool))
	return fixture{
		ports:  sqliam.Wire(pool, dialect, outbox),
		outbox: outbox,
		table: func(t testing.TB) ([]string, []map[string]string) {
			t.Helper()
			return query(t, pool, "SELECT * FROM outbox ORDER BY created_time, id")
		},
	}
}
