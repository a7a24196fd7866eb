package matrix

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/gormtx"
	"github.com/onward-go/outbox/persistence"
	"github.com/onward-go/outbox/pgxtx"
	"github.com/onward-go/outbox/sqltx"
	"github.com/onward-go/outbox/sqltx/sqlpgx"
	"github.com/onward-go/outbox/testdata/servers"
)

// flights counts what is sent to the server: a round trip is one write.
type flights struct{ atomic.Int64 }

type countedConn struct {
	net.Conn
	flights *flights
}

func (c countedConn) Write(b []byte) (int, error) {
	c.flights.Add(1)
	return c.Conn.Write(b)
}

func (f *flights) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	return countedConn{conn, f}, err
}

// chained is an outbox that pipelines, and how a handler writes a note in it, or runs
// any statement.
type chained struct {
	outbox
	note func(ctx context.Context, id string) error
	run  func(ctx context.Context, statement string) error
}

type outbox interface {
	persistence.Chainer
	persistence.Transactor
	persistence.OutboxStore
	persistence.OutboxCursorStore
	persistence.IdempotencyStore
	Migrate(context.Context) error
}

// pipelining are the faces that let a transaction end as the next one begins.
var pipelining = map[string]func(t *testing.T, config *pgx.ConnConfig) chained{
	"pgxtx": func(t *testing.T, config *pgx.ConnConfig) chained {
		pool, err := pgxpool.ParseConfig(config.ConnString())
		require.NoError(t, err)
		pool.ConnConfig, pool.MaxConns = config, enough
		return chained{pgxtx.New(openPgx(t, pool)), func(ctx context.Context, id string) error {
			return insertNote(ctx, pgxtx.Tx(ctx), id)
		}, func(ctx context.Context, statement string) error {
			_, err := pgxtx.Tx(ctx).Exec(ctx, statement)
			return err
		}}
	},
	"sqltx": func(t *testing.T, config *pgx.ConnConfig) chained {
		return chained{sqltx.New(stdDB(t, config), sqltx.Postgres, sqlpgx.Pipelined()), func(ctx context.Context, id string) error {
			_, err := sqltx.Tx(ctx).ExecContext(ctx, "INSERT INTO notes (id) VALUES ($1)", id)
			return err
		}, func(ctx context.Context, statement string) error {
			_, err := sqltx.Tx(ctx).ExecContext(ctx, statement)
			return err
		}}
	},
	"gormtx": func(t *testing.T, config *pgx.ConnConfig) chained {
		db, err := gorm.Open(postgres.New(postgres.Config{Conn: stdDB(t, config)}), &gorm.Config{})
		require.NoError(t, err)
		return chained{gormtx.New(db), func(ctx context.Context, id string) error {
			return gormtx.Tx(ctx).Exec("INSERT INTO notes (id) VALUES (?)", id).Error
		}, func(ctx context.Context, statement string) error {
			return gormtx.Tx(ctx).Exec(statement).Error
		}}
	},
}

func stdDB(t *testing.T, config *pgx.ConnConfig) *sql.DB {
	t.Helper()
	db := stdlib.OpenDB(*config)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

// onPipelines runs a test on each face, in a database with a table notes, over
// connections that are counted.
func onPipelines(t *testing.T, test func(t *testing.T, c chained, pool *pgxpool.Pool, sent *flights)) {
	for name, open := range pipelining {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := servers.CreateDatabase(t, servers.Get(t, servers.Postgres))
			config, err := pgx.ParseConfig(dsn)
			require.NoError(t, err)
			var sent flights
			config.DialFunc = sent.dial
			c := open(t, config)
			require.NoError(t, c.Migrate(t.Context()))
			pool := openPgx(t, pgxConfig(t, dsn))
			_, err = pool.Exec(t.Context(), "CREATE TABLE notes (id text)")
			require.NoError(t, err)
			test(t, c, pool, &sent)
		})
	}
}

// An event costs two round trips, although each has a transaction of its own.
func TestATransactionEndsAsTheNextBegins(t *testing.T) {
	t.Parallel()
	const n = 200
	for _, aggregates := range []int{1, n} {
		t.Run(fmt.Sprint(aggregates, "aggregates"), func(t *testing.T) {
			onPipelines(t, func(t *testing.T, c chained, pool *pgxpool.Pool, sent *flights) {
				d := events.NewDispatcher(c, c, c.outbox, c, events.WithConcurrency(1))
				require.NoError(t, d.Subscribe("t", "note", func(ctx context.Context, evt events.Event) error { return c.note(ctx, evt.ID) }))
				publishTo(t, c, n, aggregates)
				before := sent.Load()
				settled, err := d.RunOnce(t.Context(), n)
				require.NoError(t, err)
				require.Equal(t, n, settled)
				require.Len(t, column(t, pool, "notes"), n)
				require.Less(t, sent.Load()-before, int64(2*n+100), "lease, reading and saving are some more")
			})
		})
	}
}

// What a COMMIT fails with is not taken for what the next transaction's marker does: it
// would pass for an event that has been applied.
func TestACommitThatViolatesAConstraintIsNotTheNextMarkersError(t *testing.T) {
	t.Parallel()
	onPipelines(t, func(t *testing.T, c chained, pool *pgxpool.Pool, _ *flights) {
		_, err := pool.Exec(t.Context(), "ALTER TABLE notes ADD UNIQUE (id) DEFERRABLE INITIALLY DEFERRED")
		require.NoError(t, err)
		require.NoError(t, insertNote(t.Context(), pool, "taken"))
		chain := c.Chain(c.outbox)
		var before error
		held, err := chain.Atomically(t.Context(), func(ctx context.Context) error {
			if err := c.RecordNew(ctx, markerOf("first")); err != nil {
				return err
			}
			return c.note(ctx, "taken")
		}, func(err error) { before = err })
		require.NoError(t, err)
		require.True(t, held)
		next := markerOf("next")
		_, err = chain.Atomically(t.Context(), func(ctx context.Context) error { return c.RecordNew(ctx, next) }, func(error) {})
		require.Error(t, err)
		require.NotErrorIs(t, err, persistence.ErrApplied)
		var violation *pgconn.PgError
		require.ErrorAs(t, before, &violation)
		require.Equal(t, "23505", violation.Code)
		chain.Flush()
		require.NoError(t, c.Atomically(t.Context(), func(ctx context.Context) error { return c.RecordNew(ctx, next) }))
	})
}

// PostgreSQL would hand on what kind of transaction one is to that which follows it. A
// handler that makes its own READ ONLY does that to nobody else.
func TestNoTransactionIsOfAnotherKindForTheOneBefore(t *testing.T) {
	t.Parallel()
	for name, statement := range map[string]string{
		"statement":     "SET TRANSACTION READ ONLY",
		"parameter":     "set local transaction_read_only = on",
		"two":           "SET LOCAL search_path = public; SET TRANSACTION READ ONLY",
		"function":      "SELECT set_config('transaction_read_only', 'on', true)",
		"savepoint":     "SELECT set_config('transaction_read_only', 'on', true)", // in front of what is next
		"block":         "DO 'BEGIN SET TRANSACTION READ ONLY; END'",
		"isolation":     "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE, DEFERRABLE", // as the first statement
		"other setting": "SET LOCAL lock_timeout = '5s'",
	} {
		t.Run(name, func(t *testing.T) {
			onPipelines(t, func(t *testing.T, c chained, pool *pgxpool.Pool, _ *flights) {
				_, err := pool.Exec(t.Context(), kindOf)
				require.NoError(t, err)
				require.NoError(t, c.Atomically(t.Context(), func(ctx context.Context) error { // looks at the tables, once
					return c.RecordNew(ctx, markerOf("zeroth"))
				}))
				chain := c.Chain(c.outbox)
				ended := func(err error) { require.NoError(t, err) }
				_, err = chain.Atomically(t.Context(), func(ctx context.Context) error {
					if name == "isolation" {
						return c.run(ctx, statement)
					}
					return errors.Join(c.RecordNew(ctx, markerOf("first")), c.run(ctx, statement))
				}, ended)
				require.NoError(t, err)
				write := func(ctx context.Context) error {
					return errors.Join(c.RecordNew(ctx, markerOf("next")), c.note(ctx, "next"))
				}
				for _, savepoint := range []bool{name == "savepoint", false} {
					held, err := chain.Atomically(t.Context(), func(ctx context.Context) error {
						if savepoint {
							return c.Atomically(ctx, write)
						}
						return write(ctx)
					}, ended)
					require.NoError(t, err)
					require.True(t, held)
				}
				chain.Flush()
				const usual = "read committed, off, off"
				require.Equal(t, []string{usual, usual}, column(t, pool, "notes"))
			})
		})
	}
}

// kindOf has each note say of what kind its transaction is.
const kindOf = `
CREATE FUNCTION kind() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	NEW.id = concat_ws(', ', current_setting('transaction_isolation'), current_setting('transaction_read_only'), current_setting('transaction_deferrable'));
	RETURN NEW;
END $$;
CREATE TRIGGER kind BEFORE INSERT ON notes FOR EACH ROW EXECUTE FUNCTION kind()`

// publishTo publishes n events of so many aggregates in turn.
func publishTo(t *testing.T, c chained, n, aggregates int) {
	t.Helper()
	publisher := events.NewPublisher(c)
	require.NoError(t, c.Atomically(t.Context(), func(ctx context.Context) error {
		evts := make([]events.Event, n)
		for i := range evts {
			evts[i] = events.Event{ID: fmt.Sprintf("e%03d", i), Type: "t", AggregateType: "a", AggregateID: fmt.Sprint(i % aggregates)}
		}
		return publisher.Publish(ctx, evts...)
	}))
}
