package sqltx_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/persistence"
	"github.com/onward-go/outbox/sqltx"
)

var errRollback = errors.New("roll back")

func migrated(t testing.TB, opts ...sqltx.Option) (*sql.DB, *sqltx.Outbox) {
	t.Helper()
	return migratedBy(t, drivers["pure"], opts...)
}

func migratedBy(t testing.TB, d driver, opts ...sqltx.Option) (*sql.DB, *sqltx.Outbox) {
	t.Helper()
	db := d.openNew(t)
	outbox := sqltx.New(db, sqltx.SQLite, opts...)
	require.NoError(t, outbox.Migrate(t.Context()))
	_, err := db.ExecContext(t.Context(), "CREATE TABLE users (id TEXT PRIMARY KEY NOT NULL, status TEXT NOT NULL DEFAULT 'active')")
	require.NoError(t, err)
	return db, outbox
}

func event(id string) events.Event {
	return events.Event{ID: id, Type: "t", AggregateType: "User", AggregateID: "1"}
}

func insert(ctx context.Context, db sqltx.DBTX, id string) error {
	_, err := db.ExecContext(ctx, "INSERT INTO users (id) VALUES (?)", id)
	return err
}

// ids returns the keys of a table.
func ids(t testing.TB, db sqltx.DBTX, table string) []string {
	t.Helper()
	found := []string{}
	rows, err := db.QueryContext(t.Context(), "SELECT id FROM "+table+" ORDER BY id")
	require.NoError(t, err)
	defer rows.Close()
	for rows.Next() {
		var id string
		require.NoError(t, rows.Scan(&id))
		found = append(found, id)
	}
	require.NoError(t, rows.Err())
	return found
}

func TestTxIsTheTransactionOfTheContext(t *testing.T) {
	db, outbox := migrated(t)
	require.ErrorIs(t, outbox.Atomically(t.Context(), func(ctx context.Context) error {
		require.NoError(t, insert(ctx, sqltx.Tx(ctx), "1"))
		require.NoError(t, insert(ctx, sqltx.DB(ctx, db), "2"))
		require.ErrorIs(t, outbox.Atomically(ctx, func(ctx context.Context) error {
			require.NoError(t, insert(ctx, sqltx.Tx(ctx), "3"))
			return errRollback
		}), errRollback)
		require.Equal(t, []string{"1", "2"}, ids(t, sqltx.Tx(ctx), "users"))
		var n int
		require.NoError(t, sqltx.Tx(ctx).QueryRowContext(ctx, "SELECT count(*) FROM users").Scan(&n))
		require.Equal(t, 2, n)
		stmt, err := sqltx.Tx(ctx).PrepareContext(ctx, "SELECT count(*) FROM users WHERE id < ?")
		require.NoError(t, err)
		defer stmt.Close()
		require.NoError(t, stmt.QueryRowContext(ctx, "2").Scan(&n))
		require.Equal(t, 1, n)
		return errRollback
	}), errRollback)
	require.Empty(t, ids(t, sqltx.DB(t.Context(), db), "users"))
}

// requireRefused makes sure that no statement runs.
func requireRefused(t *testing.T, ctx context.Context, db sqltx.DBTX, query string, want error) {
	t.Helper()
	_, err := db.ExecContext(ctx, query)
	require.ErrorIs(t, err, want, query)
	rows, err := db.QueryContext(ctx, query)
	require.ErrorIs(t, err, want, query)
	require.Nil(t, rows, query)
	require.ErrorIs(t, db.QueryRowContext(ctx, query).Scan(new(string)), want, query)
	_, err = db.PrepareContext(ctx, query)
	require.ErrorIs(t, err, want, query)
}

func TestTxOutsideATransactionFailsClosed(t *testing.T) {
	db, outbox := migrated(t)
	var leaked context.Context
	require.NoError(t, outbox.Atomically(t.Context(), func(ctx context.Context) error { leaked = ctx; return nil }))
	for _, ctx := range []context.Context{t.Context(), leaked} {
		requireRefused(t, ctx, sqltx.Tx(ctx), "INSERT INTO users (id) VALUES ('1') RETURNING id", persistence.ErrNoTransaction)
	}
	require.Empty(t, ids(t, db, "users"))
	require.NoError(t, insert(leaked, sqltx.DB(leaked, db), "2"), "DB is the pool once the transaction has ended")
}

// While the transaction is open, nothing may commit beside it by mistake.
func TestDBWhereTheTransactionTakesNoStatementsFailsClosed(t *testing.T) {
	db, outbox := migrated(t)
	require.NoError(t, outbox.Atomically(t.Context(), func(ctx context.Context) error {
		var leaked context.Context
		require.NoError(t, outbox.Atomically(ctx, func(ctx context.Context) error { leaked = ctx; return nil }))
		requireRefused(t, leaked, sqltx.DB(leaked, db), "INSERT INTO users (id) VALUES ('1') RETURNING id", persistence.ErrNoTransaction)
		return nil
	}))
	require.Empty(t, ids(t, db, "users"))
}

func TestStatementsThatEndTheTransactionAreRefused(t *testing.T) {
	db, outbox := migrated(t)
	require.NoError(t, outbox.Atomically(t.Context(), func(ctx context.Context) error {
		for _, statement := range []string{"COMMIT", " rollback ", "ROLLBACK TRANSACTION", "end;", "BEGIN IMMEDIATE", "START TRANSACTION", "commit -- x"} {
			requireRefused(t, ctx, sqltx.Tx(ctx), statement, persistence.ErrInTransaction)
			requireRefused(t, ctx, sqltx.DB(ctx, db), statement, persistence.ErrInTransaction)
		}
		return events.NewPublisher(outbox).Publish(ctx, event("a"))
	}))
	require.Equal(t, []string{"a"}, ids(t, db, "outbox"))
}

func TestATransactionThatSQLiteEndedIsDead(t *testing.T) {
	for name, d := range drivers {
		for how, end := range map[string]func(ctx context.Context, tx sqltx.DBTX) error{
			"exec": func(ctx context.Context, tx sqltx.DBTX) error {
				_, err := tx.ExecContext(ctx, "INSERT OR ROLLBACK INTO users VALUES (NULL, NULL)")
				return err
			},
			"a result": func(ctx context.Context, tx sqltx.DBTX) error {
				rows, err := tx.QueryContext(ctx, "INSERT OR ROLLBACK INTO users (id) VALUES ('a'), ('b'), (NULL) RETURNING id")
				if err != nil {
					return err
				}
				for rows.Next() {
				}
				return errors.Join(rows.Err(), rows.Close())
			},
			"a row": func(ctx context.Context, tx sqltx.DBTX) error {
				return tx.QueryRowContext(ctx, "INSERT OR ROLLBACK INTO users (id) VALUES (NULL) RETURNING id").Scan(new(string))
			},
			"a prepared statement": func(ctx context.Context, tx sqltx.DBTX) error {
				stmt, err := tx.PrepareContext(ctx, "INSERT OR ROLLBACK INTO users (id) VALUES (?)")
				if err != nil {
					return err
				}
				_, err = stmt.ExecContext(ctx, nil)
				return errors.Join(err, stmt.Close())
			},
		} {
			t.Run(name+"/"+how, func(t *testing.T) {
				db, outbox := migratedBy(t, d)
				require.Error(t, outbox.Atomically(t.Context(), func(ctx context.Context) error {
					tx := sqltx.Tx(ctx)
					require.Error(t, end(ctx, tx))
					require.ErrorIs(t, events.NewPublisher(outbox).Publish(ctx, event("a")), persistence.ErrNoTransaction)
					require.Error(t, insert(ctx, tx, "committed by itself"))
					require.Error(t, insert(ctx, sqltx.Tx(ctx), "committed by itself"))
					require.Error(t, insert(ctx, sqltx.DB(ctx, db), "beside it"))
					return nil // the error is swallowed
				}))
				require.Empty(t, ids(t, db, "users"))
				require.Empty(t, ids(t, db, "outbox"))
			})
		}
	}
}

func TestAResultThatIsLeftOpenDoesNotBlockTheEnd(t *testing.T) {
	for name, d := range drivers {
		t.Run(name, func(t *testing.T) {
			_, outbox := migratedBy(t, d)
			leave := func(ctx context.Context) {
				rows, err := sqltx.Tx(ctx).QueryContext(ctx, "SELECT 1 UNION SELECT 2")
				require.NoError(t, err)
				require.True(t, rows.Next())
				_ = sqltx.Tx(ctx).QueryRowContext(ctx, "SELECT 1") // not scanned
			}
			require.NoError(t, outbox.Atomically(t.Context(), func(ctx context.Context) error { leave(ctx); return nil }))
			require.Panics(t, func() {
				_ = outbox.Atomically(t.Context(), func(ctx context.Context) error { leave(ctx); panic("boom") })
			})
			require.NoError(t, outbox.Atomically(t.Context(), func(ctx context.Context) error {
				return events.NewPublisher(outbox).Publish(ctx, event("a"))
			}))
		})
	}
}
