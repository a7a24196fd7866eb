package matrix

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/gormtx"
	"github.com/onward-go/outbox/internal/facetest"
	"github.com/onward-go/outbox/persistence"
	"github.com/onward-go/outbox/pgxtx"
	"github.com/onward-go/outbox/sqltx"
	"github.com/onward-go/outbox/testdata/servers"
)

var errRollback = errors.New("roll back")

// pgxConfig returns a pool's configuration.
func pgxConfig(t testing.TB, dsn string) *pgxpool.Config {
	t.Helper()
	config, err := pgxpool.ParseConfig(dsn)
	require.NoError(t, err)
	config.MaxConns = enough
	return config
}

// newPgx returns an outbox in a database with a table notes.
func newPgx(t testing.TB, config *pgxpool.Config) (*pgxpool.Pool, *pgxtx.Outbox) {
	t.Helper()
	pool := openPgx(t, config)
	outbox := pgxtx.New(pool)
	require.NoError(t, outbox.Migrate(t.Context()))
	_, err := pool.Exec(t.Context(), "CREATE TABLE notes (id text)")
	require.NoError(t, err)
	return pool, outbox
}

// column returns the ids in a table, as db sees them.
func column(t testing.TB, db pgxtx.DBTX, table string) []string {
	t.Helper()
	rows, err := db.Query(t.Context(), "SELECT id FROM "+table+" ORDER BY id")
	require.NoError(t, err)
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	return append([]string{}, ids...)
}

func insertNote(ctx context.Context, db pgxtx.DBTX, id string) error {
	_, err := db.Exec(ctx, "INSERT INTO notes (id) VALUES ($1)", id)
	return err
}

func pgxEvent(id string) events.Event {
	return events.Event{ID: id, Type: "t", AggregateType: "a", AggregateID: "1"}
}

// onPgx runs a test with each way in which pgx sends statements.
func onPgx(t *testing.T, test func(t *testing.T, pool *pgxpool.Pool, outbox *pgxtx.Outbox)) {
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			config := pgxConfig(t, PostgresDSN(t))
			config.ConnConfig.DefaultQueryExecMode = mode
			pool, outbox := newPgx(t, config)
			test(t, pool, outbox)
		})
	}
}

// A transaction that the user has begun ends as he likes, and the event with it.
func TestTheUsersOwnPgxTransaction(t *testing.T) {
	t.Parallel()
	onPgx(t, func(t *testing.T, pool *pgxpool.Pool, outbox *pgxtx.Outbox) {
		publisher := events.NewPublisher(outbox)
		work := func(tx pgx.Tx, id string) context.Context {
			ctx, err := outbox.WithTx(t.Context(), tx)
			require.NoError(t, err)
			require.NoError(t, insertNote(ctx, tx, id))
			require.NoError(t, insertNote(ctx, pgxtx.Tx(ctx), id+" by Tx"))
			require.NoError(t, insertNote(ctx, pgxtx.DB(ctx, pool), id+" by DB"))
			require.NoError(t, publisher.Publish(ctx, pgxEvent(id)))
			require.ErrorIs(t, outbox.Atomically(ctx, func(ctx context.Context) error {
				require.NoError(t, publisher.Publish(ctx, pgxEvent(id+"-savepoint")))
				return errRollback
			}), errRollback)
			require.ErrorIs(t, persistence.AfterCommit(ctx, func(context.Context) {}), persistence.ErrCommitNotObserved)
			require.ErrorIs(t, pgxtx.Tx(ctx).Commit(ctx), persistence.ErrInTransaction)
			return ctx
		}
		late := func(ctx context.Context) {
			require.ErrorIs(t, publisher.Publish(ctx, pgxEvent("late")), persistence.ErrNoTransaction)
			require.ErrorIs(t, insertNote(ctx, pgxtx.Tx(ctx), "late"), persistence.ErrNoTransaction)
			require.ErrorIs(t, insertNote(ctx, pgxtx.DB(ctx, pool), "late"), persistence.ErrNoTransaction)
			require.Error(t, outbox.Atomically(ctx, func(context.Context) error { t.Error("ran in an ended transaction"); return nil }))
		}
		tx, err := pool.Begin(t.Context())
		require.NoError(t, err)
		ctx := work(tx, "committed")
		require.NoError(t, tx.Commit(t.Context()))
		late(ctx)

		tx, err = pool.Begin(t.Context())
		require.NoError(t, err)
		ctx = work(tx, "rolled-back")
		require.NoError(t, tx.Rollback(t.Context()))
		late(ctx)

		// Savepoints of pgx.
		tx, err = pool.Begin(t.Context())
		require.NoError(t, err)
		back, err := tx.Begin(t.Context())
		require.NoError(t, err)
		ctx = work(back, "rolled-back-to-a-savepoint")
		require.NoError(t, back.Rollback(t.Context()))
		late(ctx)
		kept, err := tx.Begin(t.Context())
		require.NoError(t, err)
		ctx = work(kept, "released")
		require.NoError(t, kept.Commit(t.Context()))
		late(ctx)
		require.NoError(t, tx.Commit(t.Context()))

		require.Equal(t, []string{"committed", "released"}, column(t, pool, "outbox"))
		require.Equal(t, []string{"committed", "committed by DB", "committed by Tx", "released", "released by DB", "released by Tx"}, column(t, pool, "notes"))
	})
}

// One that the user ended with a statement is noticed.
func TestTheUsersOwnPgxTransactionThatAStatementEnded(t *testing.T) {
	t.Parallel()
	pool, outbox := newPgx(t, pgxConfig(t, PostgresDSN(t)))
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	ctx, err := outbox.WithTx(t.Context(), tx)
	require.NoError(t, err)
	_, err = tx.Exec(ctx, "COMMIT")
	require.NoError(t, err)
	for range 2 {
		require.ErrorIs(t, events.NewPublisher(outbox).Publish(ctx, pgxEvent("late")), persistence.ErrNoTransaction)
	}
	_ = tx.Rollback(t.Context())
}

// All that a pgx.Tx has runs in the transaction.
func TestPgxTxIsTheTransaction(t *testing.T) {
	t.Parallel()
	onPgx(t, func(t *testing.T, pool *pgxpool.Pool, outbox *pgxtx.Outbox) {
		want := []string{"batch", "copied", "exec", "in a savepoint", "query", "row"}
		all := func(ctx context.Context) error {
			tx := pgxtx.Tx(ctx)
			require.NoError(t, insertNote(ctx, tx, "exec"))
			rows, err := tx.Query(ctx, "INSERT INTO notes VALUES ('query') RETURNING id")
			require.NoError(t, err)
			_, err = pgx.CollectExactlyOneRow(rows, pgx.RowTo[string])
			require.NoError(t, err)
			var id string
			require.NoError(t, tx.QueryRow(ctx, "INSERT INTO notes VALUES ('row') RETURNING id").Scan(&id))
			require.ErrorIs(t, tx.QueryRow(ctx, "SELECT id FROM notes WHERE false").Scan(&id), pgx.ErrNoRows)
			var batch pgx.Batch
			batch.Queue("INSERT INTO notes VALUES ('batch')")
			require.NoError(t, tx.SendBatch(ctx, &batch).Close())
			n, err := tx.CopyFrom(ctx, pgx.Identifier{"notes"}, []string{"id"}, pgx.CopyFromRows([][]any{{"copied"}}))
			require.NoError(t, err)
			require.EqualValues(t, 1, n)
			_, err = tx.Prepare(ctx, "", "SELECT 1")
			require.NoError(t, err)
			objects := tx.LargeObjects()
			_, err = objects.Create(ctx, 0)
			require.NoError(t, err)
			require.NotNil(t, tx.Conn())
			require.ErrorIs(t, pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
				require.NoError(t, insertNote(ctx, tx, "gone"))
				return errRollback
			}), errRollback)
			require.NoError(t, pgx.BeginFunc(ctx, pgxtx.DB(ctx, pool), func(tx pgx.Tx) error {
				require.NoError(t, pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error { return insertNote(ctx, tx, "in a savepoint") }))
				require.Error(t, pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error { return tx.QueryRow(ctx, "SELECT 1/0").Scan(new(int)) }))
				return nil
			}))
			require.Equal(t, want, column(t, tx, "notes"))
			require.Empty(t, column(t, pool, "notes"))
			return events.NewPublisher(outbox).Publish(ctx, pgxEvent("a"))
		}
		require.ErrorIs(t, outbox.Atomically(t.Context(), func(ctx context.Context) error {
			require.NoError(t, all(ctx))
			return errRollback
		}), errRollback)
		require.Empty(t, column(t, pool, "notes"))
		require.Empty(t, column(t, pool, "outbox"))
		var kept pgx.Tx
		require.NoError(t, outbox.Atomically(t.Context(), func(ctx context.Context) error {
			kept = pgxtx.Tx(ctx)
			return all(ctx)
		}))
		require.Equal(t, want, column(t, pool, "notes"))
		require.Equal(t, []string{"a"}, column(t, pool, "outbox"))
		require.ErrorIs(t, insertNote(t.Context(), kept, "late"), persistence.ErrNoTransaction)
		require.ErrorIs(t, kept.QueryRow(t.Context(), "SELECT 1").Scan(new(int)), pgx.ErrTxClosed)
		require.Nil(t, kept.Conn())
	})
}

// requirePgxRefused makes sure that no statement runs.
func requirePgxRefused(t *testing.T, ctx context.Context, db pgxtx.DBTX, query string, want error) {
	t.Helper()
	_, err := db.Exec(ctx, query)
	require.ErrorIs(t, err, want, query)
	rows, err := db.Query(ctx, query)
	require.ErrorIs(t, err, want, query)
	require.False(t, rows.Next(), query)
	require.ErrorIs(t, rows.Err(), want, query)
	require.ErrorIs(t, db.QueryRow(ctx, query).Scan(new(string)), want, query)
	var batch pgx.Batch
	batch.Queue("INSERT INTO notes VALUES ('before')")
	batch.Queue(query)
	require.ErrorIs(t, db.SendBatch(ctx, &batch).Close(), want, query)
}

func TestPgxStatementsThatEndTheTransactionAreRefused(t *testing.T) {
	t.Parallel()
	pool, outbox := newPgx(t, pgxConfig(t, PostgresDSN(t)))
	require.NoError(t, outbox.Atomically(t.Context(), func(ctx context.Context) error {
		for _, statement := range []string{"COMMIT", " rollback ", "ROLLBACK TRANSACTION", "end;", "BEGIN", "START TRANSACTION", "commit -- x", "PREPARE TRANSACTION 'x'"} {
			requirePgxRefused(t, ctx, pgxtx.Tx(ctx), statement, persistence.ErrInTransaction)
			requirePgxRefused(t, ctx, pgxtx.DB(ctx, pool), statement, persistence.ErrInTransaction)
			_, err := pgxtx.Tx(ctx).Prepare(ctx, "x", statement)
			require.ErrorIs(t, err, persistence.ErrInTransaction)
		}
		require.ErrorIs(t, pgxtx.Tx(ctx).Commit(ctx), persistence.ErrInTransaction)
		require.ErrorIs(t, pgxtx.Tx(ctx).Rollback(ctx), persistence.ErrInTransaction)
		var batch pgx.Batch
		batch.BeginTx(pgx.TxOptions{})
		require.ErrorIs(t, pgxtx.Tx(ctx).SendBatch(ctx, &batch).Close(), persistence.ErrInTransaction)
		return events.NewPublisher(outbox).Publish(ctx, pgxEvent("a"))
	}))
	require.Equal(t, []string{"a"}, column(t, pool, "outbox"))
	require.Empty(t, column(t, pool, "notes"))
}

// What ends the transaction all the same leaves nothing to autocommit.
func TestAPgxTransactionThatHasEndedIsDead(t *testing.T) {
	t.Parallel()
	for how, end := range map[string]func(ctx context.Context, pool *pgxpool.Pool) error{
		"two statements in one text": func(ctx context.Context, _ *pgxpool.Pool) error {
			_, err := pgxtx.Tx(ctx).Exec(ctx, "SELECT 1; COMMIT")
			return err
		},
		"rows of two statements": func(ctx context.Context, _ *pgxpool.Pool) error {
			rows, err := pgxtx.Tx(ctx).Query(ctx, "SELECT 1; COMMIT", pgx.QueryExecModeSimpleProtocol)
			if err != nil {
				return err
			}
			rows.Close()
			return rows.Err()
		},
		"past us": func(ctx context.Context, _ *pgxpool.Pool) error {
			_, err := pgxtx.Tx(ctx).Conn().Exec(ctx, "COMMIT")
			return err
		},
		"a session that is ended": func(ctx context.Context, pool *pgxpool.Pool) error {
			pid := pgxtx.Tx(ctx).Conn().PgConn().PID()
			_, err := pool.Exec(ctx, "SELECT pg_terminate_backend($1, 10000)", pid)
			if err == nil {
				_ = insertNote(ctx, pgxtx.Tx(ctx), "never") // which notices
			}
			return err
		},
		"a connection that is closed": func(ctx context.Context, _ *pgxpool.Pool) error { return pgxtx.Tx(ctx).Conn().Close(ctx) },
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			pool, outbox := newPgx(t, pgxConfig(t, PostgresDSN(t)))
			ran := false
			require.Error(t, outbox.Atomically(t.Context(), func(ctx context.Context) error {
				tx := pgxtx.Tx(ctx)
				require.NoError(t, persistence.AfterCommit(ctx, func(context.Context) { ran = true }))
				require.NoError(t, end(ctx, pool))
				require.Error(t, insertNote(ctx, tx, "by itself"))
				require.ErrorIs(t, events.NewPublisher(outbox).Publish(ctx, pgxEvent("a")), persistence.ErrNoTransaction)
				require.Error(t, insertNote(ctx, pgxtx.Tx(ctx), "by itself"))
				require.Error(t, insertNote(ctx, pgxtx.DB(ctx, pool), "beside it"))
				_, err := tx.Begin(ctx)
				require.Error(t, err)
				_, err = tx.CopyFrom(ctx, pgx.Identifier{"notes"}, []string{"id"}, pgx.CopyFromRows([][]any{{"by itself"}}))
				require.Error(t, err)
				return nil // the errors are swallowed
			}))
			require.False(t, ran)
			require.Empty(t, column(t, pool, "notes"))
			require.Empty(t, column(t, pool, "outbox"))
		})
	}
}

// A result that nobody has closed would block the connection.
func TestAPgxResultThatIsLeftOpenDoesNotBlockTheEnd(t *testing.T) {
	t.Parallel()
	for what, leave := range map[string]func(ctx context.Context) error{
		"rows": func(ctx context.Context) error {
			rows, err := pgxtx.Tx(ctx).Query(ctx, "SELECT generate_series(1, 100000)")
			if err == nil && !rows.Next() {
				err = errors.New("no rows")
			}
			return err
		},
		"a row": func(ctx context.Context) error {
			_ = pgxtx.Tx(ctx).QueryRow(ctx, "SELECT 1")
			return nil
		},
		"a batch": func(ctx context.Context) error {
			var batch pgx.Batch
			batch.Queue("SELECT 1")
			batch.Queue("SELECT 2")
			_, err := pgxtx.Tx(ctx).SendBatch(ctx, &batch).Exec()
			return err
		},
		"rows that are in the way of a batch": func(ctx context.Context) error {
			_, err := pgxtx.Tx(ctx).Query(ctx, "SELECT 1")
			var batch pgx.Batch
			batch.Queue("SELECT 1")
			return errors.Join(err, only(pgxtx.Tx(ctx).SendBatch(ctx, &batch).Close(), "conn busy"))
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			config := pgxConfig(t, PostgresDSN(t))
			pool, outbox := newPgx(t, config)
			pid := func() (pid uint32) {
				require.NoError(t, pool.AcquireFunc(t.Context(), func(c *pgxpool.Conn) error { pid = c.Conn().PgConn().PID(); return nil }))
				return pid
			}
			before := pid()
			require.NoError(t, outbox.Atomically(t.Context(), func(ctx context.Context) error {
				require.NoError(t, events.NewPublisher(outbox).Publish(ctx, pgxEvent("a")))
				require.NoError(t, outbox.Atomically(ctx, leave))
				require.ErrorIs(t, outbox.Atomically(ctx, func(ctx context.Context) error {
					require.NoError(t, insertNote(ctx, pgxtx.Tx(ctx), "gone"))
					require.NoError(t, leave(ctx))
					return errRollback
				}), errRollback)
				return leave(ctx)
			}))
			require.Panics(t, func() {
				_ = outbox.Atomically(t.Context(), func(ctx context.Context) error {
					require.NoError(t, insertNote(ctx, pgxtx.Tx(ctx), "gone"))
					require.NoError(t, leave(ctx))
					panic("boom")
				})
			})
			require.Equal(t, []string{"a"}, column(t, pool, "outbox"))
			require.Empty(t, column(t, pool, "notes"))
			require.Equal(t, before, pid(), "the connection is as good as it was")
		})
	}
}

// only returns nil for an error with this text, and an error for any other.
func only(err error, text string) error {
	if err == nil || !strings.Contains(err.Error(), text) {
		return errors.Join(errors.New("want: "+text), err)
	}
	return nil
}

// PostgreSQL answers COMMIT with ROLLBACK where a statement has failed.
func TestAPgxCommitThatIsARollbackIsAnError(t *testing.T) {
	t.Parallel()
	onPgx(t, func(t *testing.T, pool *pgxpool.Pool, outbox *pgxtx.Outbox) {
		require.ErrorIs(t, outbox.Atomically(t.Context(), func(ctx context.Context) error {
			require.NoError(t, events.NewPublisher(outbox).Publish(ctx, pgxEvent("a")))
			require.Error(t, pgxtx.Tx(ctx).QueryRow(ctx, "SELECT 1/0").Scan(new(int))) // and swallowed
			require.ErrorIs(t, events.NewPublisher(outbox).Publish(ctx, pgxEvent("b")), persistence.ErrNoTransaction)
			return nil
		}), pgx.ErrTxCommitRollback)
		require.Empty(t, column(t, pool, "outbox"))
	})
}

// A cancelled statement takes the connection, and the transaction, with it.
func TestAPgxTransactionThatIsCancelledLeavesNothing(t *testing.T) {
	t.Parallel()
	onPgx(t, func(t *testing.T, pool *pgxpool.Pool, outbox *pgxtx.Outbox) {
		ctx, cancel := context.WithCancel(t.Context())
		var pid uint32
		err := outbox.Atomically(ctx, func(ctx context.Context) error {
			pid = pgxtx.Tx(ctx).Conn().PgConn().PID()
			require.NoError(t, insertNote(ctx, pgxtx.Tx(ctx), "gone"))
			go func() {
				for sleeping := false; !sleeping; {
					_ = pool.QueryRow(t.Context(), "SELECT wait_event = 'PgSleep' FROM pg_stat_activity WHERE pid = $1", pid).Scan(&sleeping)
				}
				cancel()
			}()
			_, err := pgxtx.Tx(ctx).Exec(ctx, "SELECT pg_sleep(60)")
			return err
		})
		require.ErrorIs(t, err, context.Canceled)
		require.False(t, outbox.IsTransient(err))
		for gone := false; !gone; { // the server notices
			require.NoError(t, pool.QueryRow(t.Context(), "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $1", pid).Scan(&gone))
		}

		// Between two statements nothing is lost but the transaction.
		ctx, cancel = context.WithCancel(t.Context())
		require.ErrorIs(t, outbox.Atomically(ctx, func(ctx context.Context) error {
			pid = pgxtx.Tx(ctx).Conn().PgConn().PID()
			require.NoError(t, insertNote(ctx, pgxtx.Tx(ctx), "gone"))
			cancel()
			return nil
		}), context.Canceled)
		require.Empty(t, column(t, pool, "notes"))
		require.NoError(t, pool.AcquireFunc(t.Context(), func(c *pgxpool.Conn) error {
			require.Equal(t, pid, c.Conn().PgConn().PID())
			require.Equal(t, byte('I'), c.Conn().PgConn().TxStatus())
			return nil
		}))
	})
}

// A connection whose commit has no answer is not used again.
func TestAPgxCommitThatIsLost(t *testing.T) {
	t.Parallel()
	server := servers.Get(t, servers.Postgres)
	n := newNetwork(t, server.Addr)
	pool, outbox := newPgx(t, pgxConfig(t, strings.Replace(servers.CreateDatabase(t, server), server.Addr, n.addr, 1)))
	commit := func(id string) error {
		return outbox.Atomically(t.Context(), func(ctx context.Context) error {
			return errors.Join(insertNote(ctx, pgxtx.Tx(ctx), id), events.NewPublisher(outbox).Publish(ctx, pgxEvent(id)))
		})
	}
	require.NoError(t, commit("whole"))
	for id, when := range map[string]cut{"request-lost": beforeCommit, "reply-lost": beforeTheReply} {
		n.cutAt(when)
		err := commit(id)
		require.Error(t, err)
		require.True(t, outbox.IsTransient(err), err)
	}
	require.Equal(t, []string{"reply-lost", "whole"}, column(t, pool, "notes"))
	require.Equal(t, []string{"reply-lost", "whole"}, column(t, pool, "outbox"))
	require.NoError(t, commit("next"))
}

func TestPgxPublishIsOneRoundTrip(t *testing.T) {
	config := pgxConfig(t, PostgresDSN(t))
	var counter roundTrips
	config.ConnConfig.Tracer = &counter
	_, outbox := newPgx(t, config)
	publisher := events.NewPublisher(outbox)
	counts := map[int]int64{}
	for _, n := range []int{1, 2, 1, 2, 1000, 20_000} { // the first two prepare
		require.NoError(t, outbox.Atomically(t.Context(), func(ctx context.Context) error {
			before := counter.n.Load()
			err := publisher.Publish(ctx, newEvents(n)...)
			counts[n] = counter.n.Load() - before
			return err
		}))
	}
	require.Equal(t, map[int]int64{1: 1, 2: 1, 1000: 1, 20_000: 1}, counts)
	before := counter.n.Load()
	require.NoError(t, outbox.Atomically(t.Context(), func(ctx context.Context) error { return publisher.Publish(ctx, newEvents(1)...) }))
	require.EqualValues(t, 2, counter.n.Load()-before, "begin and publish, commit")
	before = counter.n.Load()
	require.NoError(t, outbox.Atomically(t.Context(), func(context.Context) error { return nil }))
	require.Zero(t, counter.n.Load()-before, "nothing begins")
}

func TestPgxHandlersCommitAsynchronouslyIfAsked(t *testing.T) {
	t.Parallel()
	pool, plain := newPgx(t, pgxConfig(t, PostgresDSN(t)))
	for want, outbox := range map[string]*pgxtx.Outbox{"on": plain, "off": pgxtx.New(pool, pgxtx.WithAsynchronousCommit())} {
		require.NoError(t, outbox.Atomically(t.Context(), func(ctx context.Context) error {
			_, err := outbox.Record(ctx, persistence.Marker{Event: persistence.Cursor{ID: "e"}, Handler: want})
			require.NoError(t, err)
			var set string
			require.NoError(t, pgxtx.Tx(ctx).QueryRow(ctx, "SHOW synchronous_commit").Scan(&set))
			require.Equal(t, want, set)
			return nil
		}))
	}
}

// What a service publishes through one face, it dispatches through another.
func TestPgxSharesTheTables(t *testing.T) {
	t.Parallel()
	dsn := PostgresDSN(t)
	pool, byPgx := newPgx(t, pgxConfig(t, dsn))
	db := Open(t, postgres.Open(dsn), &gorm.Config{Logger: logger.Discard})
	byGORM := gormtx.New(db)
	sqlPool, err := db.DB()
	require.NoError(t, err)
	bySQL := sqltx.New(sqlPool, sqltx.Postgres)
	require.NoError(t, byGORM.Migrate(t.Context()), "it is done")
	for id, c := range map[string]struct {
		producer facetest.Outbox
		consumer facetest.Outbox
		handler  events.Handler
	}{
		"gorm-to-pgx": {byGORM, byPgx, func(ctx context.Context, evt events.Event) error { return insertNote(ctx, pgxtx.Tx(ctx), evt.ID) }},
		"sql-to-pgx":  {bySQL, byPgx, func(ctx context.Context, evt events.Event) error { return insertNote(ctx, pgxtx.Tx(ctx), evt.ID) }},
		"pgx-to-gorm": {byPgx, byGORM, func(ctx context.Context, evt events.Event) error { return gormtx.Tx(ctx).Create(&note{evt.ID}).Error }},
		"pgx-to-sql": {byPgx, bySQL, func(ctx context.Context, evt events.Event) error {
			_, err := sqltx.Tx(ctx).ExecContext(ctx, "INSERT INTO notes VALUES ($1)", evt.ID)
			return err
		}},
	} {
		require.NoError(t, c.producer.Atomically(t.Context(), func(ctx context.Context) error {
			return events.NewPublisher(c.producer).Publish(ctx, events.Event{ID: id, Type: id, AggregateType: "a", AggregateID: "1"})
		}))
		d := events.NewDispatcher(c.consumer, c.consumer, c.consumer, c.consumer)
		require.NoError(t, d.Subscribe(id, "h", c.handler))
		for range 2 { // the second time by a marker that the other face wrote
			for n := 0; n == 0; {
				n, err = d.RunOnce(t.Context(), 100)
				require.NoError(t, err)
			}
			require.NoError(t, c.producer.Rewind(t.Context(), events.DefaultName, persistence.Cursor{}))
		}
	}
	require.Equal(t, []string{"gorm-to-pgx", "pgx-to-gorm", "pgx-to-sql", "sql-to-pgx"}, column(t, pool, "notes"))

	// Neither takes part in a transaction of the other.
	require.NoError(t, byGORM.Atomically(t.Context(), func(ctx context.Context) error {
		require.ErrorIs(t, insertNote(ctx, pgxtx.Tx(ctx), "none"), persistence.ErrNoTransaction)
		require.ErrorIs(t, events.NewPublisher(byPgx).Publish(ctx, pgxEvent("none")), persistence.ErrNoTransaction)
		return byPgx.Atomically(ctx, func(ctx context.Context) error {
			require.ErrorIs(t, gormtx.Tx(ctx).Create(&note{"none"}).Error, persistence.ErrNoTransaction)
			return events.NewPublisher(byPgx).Publish(ctx, pgxEvent("inner"))
		})
	}))

	// And what one has dropped the other does not look for.
	require.NoError(t, facetest.Partition(t.Context(), sqlPool, "postgres", facetest.Naming{}, startOfMonth(-6)))
	report, err := pgxtx.RunRetention(t.Context(), pool, 90*day)
	require.NoError(t, err)
	require.Len(t, report.Dropped, 2)
	report, err = gormtx.RunRetention(t.Context(), db, 90*day)
	require.NoError(t, err)
	require.Empty(t, report.Dropped)
	require.Len(t, column(t, pool, "outbox"), 5)
}
