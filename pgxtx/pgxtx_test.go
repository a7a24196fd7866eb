package pgxtx_test

import (
	"context"
	"reflect"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/persistence"
	"github.com/onward-go/outbox/pgxtx"
	"github.com/onward-go/outbox/sqltx"
)

// What needs no server is tested here; package matrix has the rest.

// unreachable returns a pool that never connects.
func unreachable(t *testing.T) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), "postgres://nobody@127.0.0.1:1/none?connect_timeout=5")
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

func TestBadOptionsAreReturnedByEveryCall(t *testing.T) {
	pool := unreachable(t)
	for want, outbox := range map[string]*pgxtx.Outbox{
		"prefix":                   pgxtx.New(pool, pgxtx.WithTablePrefix("no-identifier")),
		"schema":                   pgxtx.New(pool, pgxtx.WithSchema("no-identifier")),
		"payload":                  pgxtx.New(pool, pgxtx.WithMaxPayload(0)),
		"option":                   pgxtx.New(pool, nil),
		"the *pgxpool.Pool is nil": pgxtx.New(nil),
	} {
		_, read := outbox.ReadAfter(t.Context(), persistence.Cursor{}, 1)
		_, enlisted := outbox.WithTx(t.Context(), pgxtx.Tx(t.Context()))
		for call, err := range map[string]error{
			"Atomically": outbox.Atomically(t.Context(), func(context.Context) error { return nil }),
			"Migrate":    outbox.Migrate(t.Context()),
			"ReadAfter":  read,
			"WithTx":     enlisted,
		} {
			require.ErrorIs(t, err, persistence.ErrInvalid, call)
			require.ErrorContains(t, err, want, call)
		}
		require.False(t, outbox.IsTransient(persistence.ErrInvalid))
	}
	for _, bad := range []pgxtx.RetentionOption{nil, pgxtx.Option(nil), pgxtx.WithKeepKeys(0), pgxtx.WithLockTimeout(0), pgxtx.WithLockTimeout(-1)} {
		_, err := pgxtx.RunRetention(t.Context(), pool, 24*time.Hour, bad)
		require.ErrorIs(t, err, persistence.ErrInvalid)
	}
}

func TestBadOptionsOfANotificationAreReturned(t *testing.T) {
	pool := unreachable(t)
	for want, c := range map[string]struct {
		pool *pgxpool.Pool
		opt  pgxtx.WakeOption
	}{
		"prefix":                   {pool, pgxtx.WithTablePrefix("no-identifier")},
		"option 0":                 {pool, nil},
		"error handler":            {pool, pgxtx.WithErrorHandler(nil)},
		"the *pgxpool.Pool is nil": {nil, pgxtx.WithTablePrefix("")},
	} {
		err := pgxtx.Listen(t.Context(), c.pool, func() {}, c.opt)
		require.ErrorIs(t, err, persistence.ErrInvalid, want)
		require.ErrorContains(t, err, want)
		notifier := pgxtx.NewNotifier(c.pool, c.opt)
		notifier.Notify()
		require.ErrorIs(t, notifier.Close(t.Context()), persistence.ErrInvalid, want)
	}
	require.ErrorIs(t, pgxtx.Listen(t.Context(), pool, nil), persistence.ErrInvalid)
}

func TestWithTxNeedsATransaction(t *testing.T) {
	var none *pgxpool.Tx
	for _, bad := range []pgx.Tx{nil, none} {
		_, err := pgxtx.New(unreachable(t)).WithTx(t.Context(), bad)
		require.ErrorIs(t, err, persistence.ErrInvalid)
	}
}

func TestTxOutsideATransactionFailsClosed(t *testing.T) {
	ctx, tx := t.Context(), pgxtx.Tx(t.Context())
	_, err := tx.Exec(ctx, "SELECT 1")
	require.ErrorIs(t, err, persistence.ErrNoTransaction)
	rows, err := tx.Query(ctx, "SELECT 1")
	require.ErrorIs(t, err, persistence.ErrNoTransaction)
	_, err = pgx.CollectRows(rows, pgx.RowTo[int])
	require.ErrorIs(t, err, persistence.ErrNoTransaction)
	require.ErrorIs(t, tx.QueryRow(ctx, "SELECT 1").Scan(new(int)), persistence.ErrNoTransaction)
	var batch pgx.Batch
	batch.Queue("SELECT 1")
	require.ErrorIs(t, tx.SendBatch(ctx, &batch).Close(), persistence.ErrNoTransaction)
	_, err = tx.CopyFrom(ctx, pgx.Identifier{"users"}, []string{"id"}, pgx.CopyFromRows([][]any{{"1"}}))
	require.ErrorIs(t, err, persistence.ErrNoTransaction)
	_, err = tx.Prepare(ctx, "one", "SELECT 1")
	require.ErrorIs(t, err, persistence.ErrNoTransaction)
	_, err = tx.Begin(ctx)
	require.ErrorIs(t, err, persistence.ErrNoTransaction)
	require.ErrorIs(t, tx.Commit(ctx), persistence.ErrNoTransaction)
	require.ErrorIs(t, tx.Rollback(ctx), persistence.ErrNoTransaction)
	objects := tx.LargeObjects()
	_, err = objects.Create(ctx, 0)
	require.ErrorIs(t, err, pgx.ErrTxClosed)
	require.Nil(t, tx.Conn())
}

func TestAServerThatDoesNotAnswerIsATransientFault(t *testing.T) {
	outbox := pgxtx.New(unreachable(t))
	err := outbox.Atomically(t.Context(), func(context.Context) error { return nil })
	require.Error(t, err)
	require.True(t, outbox.IsTransient(err), err)
}

// Whoever knows one face knows the other.
func TestFacesAreAlike(t *testing.T) {
	methods := func(outbox any) []string {
		var names []string
		for m := range reflect.TypeOf(outbox).Methods() {
			names = append(names, m.Name)
		}
		return names
	}
	require.Equal(t, methods(&sqltx.Outbox{}), methods(&pgxtx.Outbox{}))
}
