package matrix

import (
	"cmp"
	"database/sql"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"
)

// enough connections for any test that sets no limit.
const enough = 40

// PgxPool returns a pool of pgx itself that connects as db does, and has as many
// connections.
func PgxPool(t testing.TB, db *sql.DB) *pgxpool.Pool {
	t.Helper()
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	var config *pgx.ConnConfig
	require.NoError(t, conn.Raw(func(driver any) error {
		config = driver.(*stdlib.Conn).Conn().Config()
		return nil
	}))
	require.NoError(t, conn.Close())
	config.OnNotification = nil // it is that connection's
	pool, err := pgxpool.ParseConfig(config.ConnString())
	require.NoError(t, err)
	pool.ConnConfig = config
	pool.MaxConns = int32(cmp.Or(db.Stats().MaxOpenConnections, enough))
	return openPgx(t, pool)
}

// openPgx opens a pool, and closes it at the end of the test, when all of its
// connections have to be back.
func openPgx(t testing.TB, config *pgxpool.Config) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.Eventually(t, func() bool { return pool.Stat().AcquiredConns() == 0 }, 10*time.Second, time.Millisecond)
		pool.Close()
	})
	return pool
}
