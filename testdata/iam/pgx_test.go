package iam_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/onward-go/outbox/pgxtx"
	"github.com/onward-go/outbox/testdata/iam/pgxiam"
	"github.com/onward-go/outbox/testdata/matrix"
)

// openPgx uses a pool of pgx itself. What the test sees, it sees through another.
func openPgx(t testing.TB, dialector gorm.Dialector) fixture {
	t.Helper()
	db, err := matrix.Open(t, dialector, &gorm.Config{Logger: logger.Discard}).DB()
	require.NoError(t, err)
	pool := matrix.PgxPool(t, db)
	outbox := pgxtx.New(pool)
	require.NoError(t, outbox.Migrate(t.Context()))
	require.NoError(t, pgxiam.Migrate(t.Context(), pool))
	return fixture{
		ports:  pgxiam.Wire(pool, outbox),
		outbox: outbox,
		table: func(t testing.TB) ([]string, []map[string]string) {
			t.Helper()
			return query(t, db, "SELECT * FROM outbox ORDER BY created_time, id")
		},
	}
}
