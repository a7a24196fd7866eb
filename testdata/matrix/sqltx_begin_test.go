package matrix

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/gormtx"
	"github.com/onward-go/outbox/persistence"
	"github.com/onward-go/outbox/sqltx"
	"github.com/onward-go/outbox/sqltx/sqlpgx"
	"github.com/onward-go/outbox/testdata/servers"
)

// inFlight is an outbox of sqltx whose transactions begin with their first statement.
type inFlight struct {
	*sqltx.Outbox
	db    *sql.DB       // of a single connection
	notes *pgxpool.Pool // beside it
	sent  *flights
}

func beginningSQL(t *testing.T) inFlight {
	t.Helper()
	dsn := servers.CreateDatabase(t, servers.Get(t, servers.Postgres))
	config, err := pgx.ParseConfig(dsn)
	require.NoError(t, err)
	var sent flights
	config.DialFunc = sent.dial
	// Pgx would look whether a connection that was idle for long is alive.
	db := stdlib.OpenDB(*config, stdlib.OptionShouldPing(func(context.Context, stdlib.ShouldPingParams) bool { return false }))
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	db.SetMaxOpenConns(1)
	outbox := sqltx.New(db, sqltx.Postgres, sqlpgx.Pipelined())
	require.NoError(t, outbox.Migrate(t.Context()))
	notes := openPgx(t, pgxConfig(t, dsn))
	_, err = notes.Exec(t.Context(), "CREATE TABLE notes (id text)")
	require.NoError(t, err)
	return inFlight{outbox, db, notes, &sent}
}

// execNote inserts a note by a statement that a transaction can begin with.
func execNote(ctx context.Context, id string) error {
	_, err := sqltx.Tx(ctx).ExecContext(ctx, noteOf, id)
	return err
}

func TestSqltxBeginsWithTheFirstStatement(t *testing.T) {
	t.Parallel()
	o := beginningSQL(t)
	publisher := events.NewPublisher(o)
	var flights int64
	for range 2 { // the first time, pgx prepares the statements
		before := o.sent.Load()
		require.NoError(t, o.Atomically(t.Context(), func(ctx context.Context) error {
			return errors.Join(execNote(ctx, "a"), publisher.Publish(ctx, newEvents(1)...))
		}))
		flights = o.sent.Load() - before
	}
	require.Equal(t, int64(3), flights, "the change, the event, and the COMMIT")
	require.Equal(t, []string{"a", "a"}, column(t, o.notes, "notes"))
}

// beginnings are statements that a transaction may begin with, or have as its second.
var beginnings = map[string]func(ctx context.Context, tx sqltx.DBTX) error{
	"arguments": func(ctx context.Context, tx sqltx.DBTX) error { return execNote(ctx, "a") },
	"named arguments": func(ctx context.Context, tx sqltx.DBTX) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO notes VALUES (@id)", pgx.NamedArgs{"id": "a"})
		return err
	},
	"arguments that database/sql names": func(ctx context.Context, tx sqltx.DBTX) error {
		_, err := tx.ExecContext(ctx, noteOf, sql.Named("id", "a"))
		return err
	},
	"an option": func(ctx context.Context, tx sqltx.DBTX) error {
		_, err := tx.ExecContext(ctx, noteOf, pgx.QueryExecModeSimpleProtocol, "a")
		return err
	},
	"two statements": func(ctx context.Context, tx sqltx.DBTX) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO notes VALUES ('a'); INSERT INTO notes VALUES ('b')")
		return err
	},
	"a row": func(ctx context.Context, tx sqltx.DBTX) error {
		var id string
		return tx.QueryRowContext(ctx, noteOf+" RETURNING id", "a").Scan(&id)
	},
	"rows that stay open": func(ctx context.Context, tx sqltx.DBTX) error {
		rows, err := tx.QueryContext(ctx, "INSERT INTO notes SELECT $1 || n FROM generate_series(1, 1000) AS n RETURNING id", "a")
		if err == nil {
			rows.Next()
		}
		return err
	},
	"a row that nobody scans": func(ctx context.Context, tx sqltx.DBTX) error {
		return tx.QueryRowContext(ctx, noteOf+" RETURNING id", "a").Err()
	},
	"a prepared statement": func(ctx context.Context, tx sqltx.DBTX) error {
		stmt, err := tx.PrepareContext(ctx, noteOf) // that nobody closes
		if err == nil {
			_, err = stmt.ExecContext(ctx, "a")
		}
		return err
	},
	"rows of a prepared statement that stay open": func(ctx context.Context, tx sqltx.DBTX) error {
		stmt, err := tx.PrepareContext(ctx, "INSERT INTO notes SELECT $1 || n FROM generate_series(1, 1000) AS n RETURNING id")
		if err != nil {
			return err
		}
		rows, err := stmt.QueryContext(ctx, "a")
		if err == nil {
			rows.Next()
		}
		return err
	},
	"two results that nobody reads": func(ctx context.Context, tx sqltx.DBTX) error {
		_, err := tx.QueryContext(ctx, noteOf, "a")
		_, err2 := tx.QueryContext(ctx, noteOf, "b")
		return errors.Join(err, err2)
	},
	"a statement whose time is up": func(ctx context.Context, tx sqltx.DBTX) error {
		up, cancel := context.WithCancel(ctx)
		cancel()
		_, err := tx.ExecContext(up, noteOf, "a")
		_, err2 := tx.QueryContext(up, noteOf, "a")
		if !errors.Is(err, context.Canceled) || !errors.Is(err2, context.Canceled) {
			return fmt.Errorf("it did not fail: %w, %w", err, err2)
		}
		return execNote(ctx, "a")
	},
	"a savepoint": func(ctx context.Context, tx sqltx.DBTX) error {
		_, err := tx.ExecContext(ctx, "SAVEPOINT a")
		return errors.Join(err, execNote(ctx, "a"))
	},
}

func TestSqltxWhateverBeginsIsInTheTransaction(t *testing.T) {
	t.Parallel()
	o := beginningSQL(t)
	errBack := errors.New("back")
	for _, end := range []error{errBack, nil} {
		for name, statement := range beginnings {
			for _, second := range []bool{false, true} {
				err := o.Atomically(t.Context(), func(ctx context.Context) error {
					if second {
						if err := execNote(ctx, "first"); err != nil {
							return err
						}
					}
					return errors.Join(statement(ctx, sqltx.Tx(ctx)), end)
				})
				if end != nil {
					require.ErrorIs(t, err, end, name)
					require.NotContains(t, err.Error(), "\n", name)
					require.Empty(t, column(t, o.notes, "notes"), name)
					continue
				}
				require.NoError(t, err, name)
				require.NotEmpty(t, column(t, o.notes, "notes"), name)
				_, err = o.notes.Exec(t.Context(), "TRUNCATE notes")
				require.NoError(t, err)
			}
		}
	}
	var open int
	require.NoError(t, o.db.QueryRow("SELECT count(*) FROM pg_prepared_statements WHERE name NOT LIKE 'stmtcache_%' AND statement = $1", noteOf).Scan(&open))
	require.Zero(t, open, "prepared statements")
}

// GORM prepares its statements apart from the transaction, and has database/sql bring
// them into it.
func TestSqltxStatementsThatGORMHasPrepared(t *testing.T) {
	t.Parallel()
	o := beginningSQL(t)
	o.db.SetMaxOpenConns(2) // to prepare on
	db, err := gorm.Open(postgres.New(postgres.Config{Conn: o.db}), &gorm.Config{PrepareStmt: true})
	require.NoError(t, err)
	errBack := errors.New("back")
	for _, end := range []error{errBack, nil} {
		for _, second := range []bool{false, true} {
			require.ErrorIs(t, o.Atomically(t.Context(), func(ctx context.Context) error {
				if second {
					if err := execNote(ctx, "first"); err != nil {
						return err
					}
				}
				return errors.Join(gormtx.DB(ctx, db).Create(&note{"a"}).Error, end)
			}), end)
		}
	}
	require.Equal(t, []string{"a", "a", "first"}, column(t, o.notes, "notes"))
}

func TestSqltxAFailingFirstStatementIsTheUsers(t *testing.T) {
	t.Parallel()
	o := beginningSQL(t)
	publisher := events.NewPublisher(o)
	for name, statement := range map[string]string{
		"before it is sent": "INSERT INTO elsewhere VALUES ($1)",
		"as it runs":        "INSERT INTO notes SELECT 1 / $1::int",
		"it cannot be sent": "INSERT INTO notes VALUES ($1 || $2)",
	} {
		var failed error
		err := o.Atomically(t.Context(), func(ctx context.Context) error {
			_, failed = sqltx.Tx(ctx).ExecContext(ctx, statement, "0")
			return failed
		})
		require.ErrorIs(t, err, failed, name)
		require.Error(t, failed, name)
		require.Error(t, o.Atomically(t.Context(), func(ctx context.Context) error {
			_, failed = sqltx.Tx(ctx).ExecContext(ctx, statement, "0")
			return nil
		}), "%s: it cannot commit", name)
		require.ErrorIs(t, o.Atomically(t.Context(), func(ctx context.Context) error {
			_, failed = sqltx.Tx(ctx).ExecContext(ctx, statement, "0")
			return publisher.Publish(ctx, newEvents(1)...)
		}), persistence.ErrNoTransaction, name)
	}
	require.NoError(t, o.Atomically(t.Context(), func(ctx context.Context) error {
		require.Error(t, o.Atomically(ctx, func(ctx context.Context) error { // within a savepoint
			_, err := sqltx.Tx(ctx).ExecContext(ctx, "INSERT INTO elsewhere VALUES ($1)", "a")
			return err
		}))
		return execNote(ctx, "a")
	}))
	require.Equal(t, []string{"a"}, column(t, o.notes, "notes"))
}

// Who is first begins the transaction, the others are in it.
func TestSqltxManyMayBegin(t *testing.T) {
	t.Parallel()
	o := beginningSQL(t)
	errBack := errors.New("back")
	for _, end := range []error{errBack, nil} {
		require.ErrorIs(t, o.Atomically(t.Context(), func(ctx context.Context) error {
			var group sync.WaitGroup
			errs := make(chan error, 8)
			for range cap(errs) {
				group.Go(func() { errs <- execNote(ctx, "a") })
			}
			group.Wait()
			for range cap(errs) {
				if err := <-errs; err != nil {
					return err
				}
			}
			return end
		}), end)
	}
	require.Len(t, column(t, o.notes, "notes"), 8)
}

// One in which nothing runs costs nothing.
func TestSqltxATransactionWithoutStatementsSendsNothing(t *testing.T) {
	t.Parallel()
	o := beginningSQL(t)
	before := o.sent.Load()
	require.NoError(t, o.Atomically(t.Context(), func(context.Context) error { return nil }))
	require.Equal(t, before, o.sent.Load())
}

// What a deferred constraint finds fails the COMMIT.
func TestSqltxACommitThatFailsIsToldAndRolledBack(t *testing.T) {
	t.Parallel()
	o := beginningSQL(t)
	_, err := o.notes.Exec(t.Context(), "ALTER TABLE notes ADD UNIQUE (id) DEFERRABLE INITIALLY DEFERRED")
	require.NoError(t, err)
	require.ErrorContains(t, o.Atomically(t.Context(), func(ctx context.Context) error {
		return errors.Join(execNote(ctx, "a"), execNote(ctx, "a"))
	}), "23505")
	require.NoError(t, o.Atomically(t.Context(), func(ctx context.Context) error { return execNote(ctx, "b") }))
	require.Equal(t, []string{"b"}, column(t, o.notes, "notes"))
}

// What a goroutine that is left behind still runs is in the transaction, or fails.
func TestSqltxNothingRunsAfterTheEnd(t *testing.T) {
	t.Parallel()
	o := beginningSQL(t)
	errBack := errors.New("back")
	var left sync.WaitGroup
	for range 50 {
		require.ErrorIs(t, o.Atomically(t.Context(), func(ctx context.Context) error {
			if err := execNote(ctx, "first"); err != nil {
				return err
			}
			tx := sqltx.Tx(ctx)
			var started sync.WaitGroup
			for range 8 { // of which most wait for their turn when it ends
				started.Add(1)
				left.Go(func() {
					started.Done()
					_, _ = tx.ExecContext(ctx, "INSERT INTO notes SELECT $1 FROM pg_sleep(0.001)", "left")
				})
			}
			started.Wait()
			return errBack
		}), errBack)
	}
	left.Wait()
	require.Empty(t, column(t, o.notes, "notes"))
}

// A connection that the server ends is an error, also where results are open on it.
func TestSqltxALostConnectionIsAnError(t *testing.T) {
	t.Parallel()
	o := beginningSQL(t)
	publisher := events.NewPublisher(o)
	for _, query := range []string{
		"INSERT INTO notes SELECT n FROM generate_series(1, 1000) AS n RETURNING id", // there is more of it
		"INSERT INTO notes VALUES ('a')",                                             // it is empty
	} {
		err := o.Atomically(t.Context(), func(ctx context.Context) error {
			tx := sqltx.Tx(ctx)
			if err := execNote(ctx, "a"); err != nil {
				return err
			}
			var pid int
			if err := tx.QueryRowContext(ctx, "SELECT pg_backend_pid()").Scan(&pid); err != nil {
				return err
			}
			if _, err := tx.QueryContext(ctx, query); err != nil {
				return err
			}
			if _, err := o.notes.Exec(ctx, "SELECT pg_terminate_backend($1, 10000)", pid); err != nil {
				return err
			}
			if err := publisher.Publish(ctx, newEvents(1)...); err == nil {
				return errors.New("it did not fail")
			}
			return nil
		})
		require.Error(t, err)
		require.NotContains(t, err.Error(), "it did not fail")
		require.Empty(t, column(t, o.notes, "notes"))
	}
	require.NoError(t, o.Atomically(t.Context(), func(ctx context.Context) error { return execNote(ctx, "a") }))
}

// What a row that nobody scans takes is given back at the end.
func TestSqltxARowThatNobodyScansLeavesNothing(t *testing.T) {
	t.Parallel()
	o := beginningSQL(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel() // at the end; until then nothing else ends what the row waits for
	stack := make([]byte, 1<<24)
	own, _, _ := strings.Cut(string(stack[:runtime.Stack(stack, false)]), " [")
	count := func() int { // of those that database/sql has made for rows of this test
		return strings.Count(string(stack[:runtime.Stack(stack, true)]), "initContextClose in "+own+"\n")
	}
	for range 50 {
		require.NoError(t, o.Atomically(ctx, func(ctx context.Context) error {
			return errors.Join(execNote(ctx, "a"), sqltx.Tx(ctx).QueryRowContext(ctx, noteOf+" RETURNING id", "a").Err())
		}))
	}
	require.Eventually(t, func() bool { return count() == 0 }, time.Minute, 10*time.Millisecond)
}

// A time that is up while all connections are taken is not somebody's cancellation.
func TestADeadlineThatPassesInThePoolIsADeadline(t *testing.T) {
	t.Parallel()
	onDrivers(t, func(t *testing.T, _ Server, _ *gorm.DB, pool *sql.DB, outbox *sqltx.Outbox) {
		pool.SetMaxOpenConns(1)
		taken, err := pool.Conn(t.Context())
		require.NoError(t, err)
		defer func() { require.NoError(t, taken.Close()) }()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		err = outbox.Atomically(ctx, func(context.Context) error { return nil })
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, context.Canceled)
	})
}

func TestSqltxAStatementWhileRowsAreOpenIsAnError(t *testing.T) {
	t.Parallel()
	o := beginningSQL(t)
	publisher := events.NewPublisher(o)
	require.NoError(t, o.Atomically(t.Context(), func(ctx context.Context) error {
		tx := sqltx.Tx(ctx)
		if err := execNote(ctx, "a"); err != nil {
			return err
		}
		rows, err := tx.QueryContext(ctx, "SELECT n FROM generate_series(1, 1000) AS n")
		require.NoError(t, err)
		n := 0
		for ; rows.Next(); n++ {
			require.Error(t, execNote(ctx, "while"))
			require.Error(t, tx.QueryRowContext(ctx, "SELECT 1").Scan(new(int)))
			require.Error(t, publisher.Publish(ctx, newEvents(1)...))
		}
		require.Equal(t, 1000, n)
		require.NoError(t, rows.Err())
		return publisher.Publish(ctx, newEvents(1)...)
	}))
	require.Equal(t, []string{"a"}, column(t, o.notes, "notes"))
	require.Len(t, column(t, o.notes, "outbox"), 1)
}
