package matrix

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/gormtx"
	"github.com/onward-go/outbox/persistence"
	"github.com/onward-go/outbox/pgxtx"
	"github.com/onward-go/outbox/sqltx"
	"github.com/onward-go/outbox/sqltx/sqlpgx"
)

// backend is all that a dispatcher takes.
type backend interface {
	persistence.OutboxStore
	persistence.OutboxCursorStore
	persistence.Transactor
	persistence.IdempotencyStore
	Migrate(ctx context.Context) error
}

// swallowing are the faces of PostgreSQL, each with a way to run a statement of the
// user's in the transaction that ctx carries.
func swallowing(t *testing.T, dsn string) map[string]struct {
	outbox backend
	run    func(ctx context.Context, query string, args ...any) error
} {
	onSQL := func(ctx context.Context, query string, args ...any) error {
		_, err := sqltx.Tx(ctx).ExecContext(ctx, query, args...)
		return err
	}
	query := func(ctx context.Context, query string, args ...any) error {
		found, err := pgxtx.Tx(ctx).Query(ctx, query, args...)
		if err != nil {
			return err
		}
		found.Close()
		return found.Err()
	}
	pool, err := pgxpool.New(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	onGorm := func(ctx context.Context, query string, args ...any) error {
		return gormtx.Tx(ctx).Exec(query, args...).Error
	}
	return map[string]struct {
		outbox backend
		run    func(ctx context.Context, query string, args ...any) error
	}{
		"gormtx":           {gormtx.New(Open(t, postgres.Open(dsn), &gorm.Config{Logger: logger.Discard})), onGorm},
		"gormtx, prepared": {gormtx.New(Open(t, postgres.Open(dsn), &gorm.Config{Logger: logger.Discard, PrepareStmt: true})), onGorm},
		"sqltx":            {sqltx.New(openSQL(t, "pgx", dsn), sqltx.Postgres), onSQL},
		"sqltx, pipelined": {sqltx.New(openSQL(t, "pgx", dsn), sqltx.Postgres, sqlpgx.Pipelined()), onSQL},
		"sqltx, lib/pq":    {sqltx.New(openSQL(t, "postgres", dsn), sqltx.Postgres), onSQL},
		"pgxtx": {pgxtx.New(pool), func(ctx context.Context, q string, args ...any) error {
			_, err := pgxtx.Tx(ctx).Exec(ctx, q, args...)
			return err
		}},
		"pgxtx, rows":    {pgxtx.New(pool), query},
		"pgxtx, a batch": {pgxtx.New(pool), batchOf},
		"pgxtx, a batch not read": {pgxtx.New(pool), func(ctx context.Context, q string, args ...any) error {
			return pgxtx.Tx(ctx).SendBatch(ctx, queued(q, args)).Close()
		}},
		"pgxtx, a row not scanned": {pgxtx.New(pool), func(ctx context.Context, q string, args ...any) error {
			pgxtx.Tx(ctx).QueryRow(ctx, q, args...)
			return nil
		}},
	}
}

func queued(query string, args []any) *pgx.Batch {
	batch := &pgx.Batch{}
	batch.Queue(query, args...)
	return batch
}

// batchOf runs the statement as the second of a batch.
func batchOf(ctx context.Context, query string, args ...any) error {
	batch := &pgx.Batch{}
	batch.Queue("SELECT 1")
	batch.Queue(query, args...)
	results := pgxtx.Tx(ctx).SendBatch(ctx, batch)
	_, first := results.Exec()
	_, second := results.Exec()
	return errors.Join(first, second, results.Close())
}

// A function that ignores the error of a statement, and returns nil, is told by which
// statement, and why, nothing has been committed. What a savepoint has taken back is not
// the cause.
func TestPostgresNamesTheStatementWhoseErrorWasIgnored(t *testing.T) {
	t.Parallel()
	dsn := PostgresDSN(t)
	require.NoError(t, sqltx.New(openSQL(t, "pgx", dsn), sqltx.Postgres).Migrate(t.Context()))
	for name, face := range swallowing(t, dsn) {
		t.Run(name, func(t *testing.T) {
			const one, two, fine = "SELECT 1 / (5 - 5) AS first", "SELECT 1 / (6 - 6) AS second", "SELECT 1"
			named := func(err error, statement, other string) {
				t.Helper()
				require.ErrorContains(t, err, statement)
				require.ErrorContains(t, err, "division by zero")
				require.NotContains(t, err.Error(), other)
			}
			named(face.outbox.Atomically(t.Context(), func(ctx context.Context) error {
				_ = face.run(ctx, one)
				_ = face.run(ctx, two)
				return nil
			}), one, two)
			// With arguments a transaction may begin with its first statement.
			named(face.outbox.Atomically(t.Context(), func(ctx context.Context) error {
				_ = face.run(ctx, "INSERT INTO outbox_schema SELECT 1 / 0 WHERE true OR 'x' = CAST("+numberedBy(name)+" AS text)", "x")
				return nil
			}), "INSERT INTO outbox_schema SELECT 1 / 0", two)
			within := func(query string) func(context.Context) error {
				return func(ctx context.Context) error {
					_ = face.run(ctx, fine)
					_ = face.outbox.Atomically(ctx, func(ctx context.Context) error {
						return errors.Join(face.run(ctx, one), errOnce)
					})
					_ = face.run(ctx, query)
					return nil
				}
			}
			require.NoError(t, face.outbox.Atomically(t.Context(), within(fine)))
			named(face.outbox.Atomically(t.Context(), within(two)), two, one)

			// The transactions of a dispatcher follow each other.
			dispatcher := "d " + name
			d := events.NewDispatcher(face.outbox, face.outbox, face.outbox, face.outbox, events.WithName(dispatcher))
			require.NoError(t, face.outbox.Create(t.Context(), dispatcher, persistence.Cursor{}))
			require.NoError(t, d.Subscribe(name, "h "+name, func(ctx context.Context, e events.Event) error {
				if e.AggregateID == "2" {
					_ = face.run(ctx, one)
				}
				return nil
			}))
			require.NoError(t, face.outbox.Atomically(t.Context(), func(ctx context.Context) error {
				var evts []events.Event
				for _, id := range []string{"1", "2", "3"} {
					evts = append(evts, events.Event{Type: name, AggregateType: "a", AggregateID: id})
				}
				return events.NewPublisher(face.outbox).Publish(ctx, evts...)
			}))
			_, err := d.RunOnce(t.Context(), 1000)
			named(err, one, two)
		})
	}
}

func numberedBy(face string) string {
	if face == "gormtx" || face == "gormtx, prepared" {
		return "?"
	}
	return "$1"
}

// Where the server has ended the transaction without a word, the statement that failed
// last is named.
func TestSQLiteNamesTheStatementThatHasRolledBack(t *testing.T) {
	db := openSQL(t, "sqlite", "file:"+t.TempDir()+"/outbox.db?_pragma=busy_timeout(10000)")
	outbox := sqltx.New(db, sqltx.SQLite)
	require.NoError(t, outbox.Migrate(t.Context()))
	runSQL(t, db, "CREATE TABLE notes (id TEXT PRIMARY KEY)")
	err := outbox.Atomically(t.Context(), func(ctx context.Context) error {
		for range 2 {
			_, _ = sqltx.Tx(ctx).ExecContext(ctx, "INSERT OR ROLLBACK INTO notes VALUES ('a')")
		}
		return nil
	})
	require.ErrorContains(t, err, "INSERT OR ROLLBACK INTO notes")
	require.ErrorContains(t, err, "UNIQUE constraint failed")
}
