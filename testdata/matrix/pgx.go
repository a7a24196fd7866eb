package matrix

import (
	"cmp"
	"database/sql"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/internal/pgxtest"
)

// enough connections for any test that sets no limit.
const enough = 40

// PgxPool returns a pool of pgx itself that connects as db does, and has as many
// connections.
func PgxPool(t testing.TB, db *sql.DB) *pgxpool.Pool {
	t.Helper()
	config, err := pgxtest.Config(t.Context(), db)
	require.NoError(t, err)
	config.MaxConns = cmp.Or(config.MaxConns, enough)
	return openPgx(t, config)
}

// openPgx opens a pool, and closes it at the end of the test, when all of its
// connections have to be back.
func openPgx(t testing.TB, config *pgxpool.Config) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.Eventually(t, func() bool { return pool.Stat().AcquiredConns() == 0 }, time.Minute, time.Millisecond)
		pool.Close()
	})
	return pool
}
