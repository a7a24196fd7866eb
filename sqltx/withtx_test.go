package sqltx_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/persistence"
	"github.com/onward-go/outbox/sqltx"
)

// wrapped is a transaction of a library that has no more than it must, as ent's.
type wrapped struct{ sqltx.Transaction }

// kinds are what may be enlisted.
var kinds = map[string]func(*sql.Tx) sqltx.Transaction{
	"a *sql.Tx":     func(tx *sql.Tx) sqltx.Transaction { return tx },
	"a wrapped one": func(tx *sql.Tx) sqltx.Transaction { return wrapped{tx} },
}

func TestWithTxEnlistsInATransactionOfTheUsers(t *testing.T) {
	for kind, of := range kinds {
		t.Run(kind, func(t *testing.T) {
			db, outbox := migrated(t)
			publisher := events.NewPublisher(outbox)
			work := func(id string) (sqltx.Transaction, context.Context) {
				begun, err := db.BeginTx(t.Context(), nil)
				require.NoError(t, err)
				tx := of(begun)
				ctx, err := outbox.WithTx(t.Context(), tx)
				require.NoError(t, err)
				require.NoError(t, insert(ctx, begun, id))
				require.NoError(t, publisher.Publish(ctx, event(id)))
				var status string
				require.NoError(t, sqltx.Tx(ctx).QueryRowContext(ctx, "UPDATE users SET status = 'seen' WHERE id = ? RETURNING status", id).Scan(&status))
				require.Equal(t, "seen", status)
				require.ErrorIs(t, sqltx.DB(ctx, db).QueryRowContext(ctx, "SELECT id FROM users WHERE id = 'nobody'").Scan(&status), sql.ErrNoRows)
				require.ErrorIs(t, outbox.Atomically(ctx, func(ctx context.Context) error {
					require.NoError(t, publisher.Publish(ctx, event(id+"-savepoint")))
					require.ErrorIs(t, persistence.AfterCommit(ctx, func(context.Context) {}), persistence.ErrCommitNotObserved)
					return errRollback
				}), errRollback)
				require.ErrorIs(t, persistence.AfterCommit(ctx, func(context.Context) {}), persistence.ErrCommitNotObserved)
				return tx, ctx
			}
			late := func(ctx context.Context) {
				require.ErrorIs(t, publisher.Publish(ctx, event("late")), persistence.ErrNoTransaction)
				require.Error(t, insert(ctx, sqltx.Tx(ctx), "late"))
				require.Error(t, insert(ctx, sqltx.DB(ctx, db), "late"))
				require.Error(t, outbox.Atomically(ctx, func(context.Context) error { t.Error("ran in an ended transaction"); return nil }))
			}
			tx, ctx := work("committed")
			require.NoError(t, tx.Commit())
			late(ctx)
			tx, ctx = work("rolled-back")
			require.NoError(t, tx.Rollback())
			late(ctx)
			require.Equal(t, []string{"committed"}, ids(t, db, "outbox"))
			require.Equal(t, []string{"committed"}, ids(t, db, "users"))
		})
	}
}

// A row of a transaction that has no QueryRowContext is that of its
// QueryContext.
func TestARowOfAWrappedTransaction(t *testing.T) {
	for name, d := range drivers {
		t.Run(name, func(t *testing.T) {
			db, outbox := migratedBy(t, d)
			begun, err := db.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			defer func() { require.NoError(t, begun.Rollback()) }()
			ctx, err := outbox.WithTx(t.Context(), wrapped{begun})
			require.NoError(t, err)
			row := func(query string, args ...any) *sql.Row { return sqltx.Tx(ctx).QueryRowContext(ctx, query, args...) }

			var (
				number int64
				real   float64
				text   string
				blob   []byte
				null   sql.NullString
			)
			require.NoError(t, row("SELECT ?, 1.5, 'text', x'00ff', NULL UNION ALL SELECT 2, 2, '', '', ''", 1).Scan(&number, &real, &text, &blob, &null))
			require.Equal(t, []any{int64(1), 1.5, "text", []byte{0, 255}, sql.NullString{}}, []any{number, real, text, blob, null})
			require.ErrorIs(t, row("SELECT 1 WHERE 1 = 0").Scan(&number), sql.ErrNoRows)
			require.ErrorContains(t, row("nonsense").Scan(&number), "nonsense")
			require.ErrorContains(t, row("SELECT abs(-9223372036854775808)").Scan(&number), "overflow")
			cancelled, cancel := context.WithCancel(ctx)
			cancel()
			require.ErrorIs(t, sqltx.Tx(ctx).QueryRowContext(cancelled, "SELECT 1").Scan(&number), context.Canceled)
			require.NoError(t, row("SELECT 1").Scan(&number))
		})
	}
}

func TestAWrappedTransactionPreparesNothing(t *testing.T) {
	db, outbox := migrated(t)
	begun, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, begun.Rollback()) }()
	ctx, err := outbox.WithTx(t.Context(), wrapped{begun})
	require.NoError(t, err)
	_, err = sqltx.Tx(ctx).PrepareContext(ctx, "SELECT 1")
	require.ErrorIs(t, err, persistence.ErrInvalid)
}

func TestWithTxSeesThatSQLiteEndedTheTransaction(t *testing.T) {
	for kind, of := range kinds {
		t.Run(kind, func(t *testing.T) {
			db, outbox := migrated(t)
			begun, err := db.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			ctx, err := outbox.WithTx(t.Context(), of(begun))
			require.NoError(t, err)
			_, err = begun.ExecContext(ctx, "INSERT OR ROLLBACK INTO users VALUES (NULL, NULL)")
			require.Error(t, err)
			require.ErrorIs(t, events.NewPublisher(outbox).Publish(ctx, event("a")), persistence.ErrNoTransaction)
			require.Error(t, insert(ctx, sqltx.Tx(ctx), "committed by itself"))
			_ = begun.Rollback()
			require.Empty(t, ids(t, db, "outbox"))
			require.Empty(t, ids(t, db, "users"))
		})
	}
}

func TestWithTxNeedsATransaction(t *testing.T) {
	db, outbox := migrated(t)
	var none *sql.Tx
	for _, bad := range []sqltx.Transaction{nil, none} {
		_, err := outbox.WithTx(t.Context(), bad)
		require.ErrorIs(t, err, persistence.ErrInvalid)
	}
	begun, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, begun.Rollback()) }()
	_, err = sqltx.New(db, sqltx.SQLite, sqltx.WithSchema("app")).WithTx(t.Context(), begun)
	require.ErrorIs(t, err, persistence.ErrInvalid)
}
