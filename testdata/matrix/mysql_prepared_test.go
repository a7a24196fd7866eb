package matrix

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/persistence"
	"github.com/onward-go/outbox/sqltx"
	"github.com/onward-go/outbox/testdata/servers"
)

// onPreparing runs a test on the servers whose driver prepares each statement that has
// arguments, on a pool of a single connection.
func onPreparing(t *testing.T, options string, test func(t *testing.T, db *sql.DB)) {
	t.Helper()
	for _, kind := range []*servers.Kind{servers.MySQL, servers.MariaDB} {
		t.Run(kind.Name, func(t *testing.T) {
			t.Parallel()
			db, err := sql.Open("mysql", servers.CreateDatabase(t, servers.Get(t, kind))+options)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, db.Close()) })
			db.SetMaxOpenConns(1)
			require.NoError(t, sqltx.Migrate(t.Context(), db, sqltx.MySQL))
			test(t, db)
		})
	}
}

// sessionStatus returns a counter of the pool's connection.
func sessionStatus(t testing.TB, db *sql.DB, name string) (n int) {
	t.Helper()
	require.NoError(t, db.QueryRowContext(t.Context(), "SHOW SESSION STATUS WHERE Variable_name = '"+name+"'").Scan(&name, &n))
	return n
}

func TestMySQLStatementsStayPrepared(t *testing.T) {
	t.Parallel()
	onPreparing(t, "", func(t *testing.T, db *sql.DB) {
		o := sqltx.New(db, sqltx.MySQL)
		publisher := events.NewPublisher(o)
		marked := 0
		transact := func(times int) (prepared int) {
			before := sessionStatus(t, db, "Com_stmt_prepare")
			for range times {
				evt := newEvents(1)[0]
				evt.ID = events.NewID()
				marker := markerOf(evt.ID)
				require.NoError(t, o.Atomically(t.Context(), func(ctx context.Context) error {
					return errors.Join(publisher.Publish(ctx, evt), o.RecordNew(ctx, marker))
				}))
				marked++
			}
			return sessionStatus(t, db, "Com_stmt_prepare") - before
		}
		require.NotZero(t, transact(3))
		require.Zero(t, transact(5))
		// The server prepares again what the table has changed under.
		_, err := db.ExecContext(t.Context(), "ALTER TABLE outbox COMMENT = 'changed'")
		require.NoError(t, err)
		transact(2)
		var events, markers int
		require.NoError(t, db.QueryRowContext(t.Context(), "SELECT (SELECT COUNT(*) FROM outbox), (SELECT COUNT(*) FROM outbox_idempotency)").Scan(&events, &markers))
		require.Equal(t, []int{marked, marked}, []int{events, markers})
		// What is known already is, by the same statement.
		twice := markerOf("twice")
		record := func(ctx context.Context) error { return o.RecordNew(ctx, twice) }
		require.NoError(t, o.Atomically(t.Context(), record))
		require.ErrorIs(t, o.Atomically(t.Context(), record), persistence.ErrApplied)
	})
}

// Whoever has the driver put arguments into the text has a reason.
func TestMySQLNothingIsPreparedWhereTheDriverInterpolates(t *testing.T) {
	t.Parallel()
	onPreparing(t, "?interpolateParams=true", func(t *testing.T, db *sql.DB) {
		o := sqltx.New(db, sqltx.MySQL)
		publisher := events.NewPublisher(o)
		before := sessionStatus(t, db, "Com_stmt_prepare") // to migrate
		for range 5 {
			require.NoError(t, o.Atomically(t.Context(), func(ctx context.Context) error { return publisher.Publish(ctx, newEvents(1)...) }))
		}
		require.Equal(t, before, sessionStatus(t, db, "Com_stmt_prepare"))
	})
}

// Nobody who holds a connection waits for another one to prepare on.
func TestMySQLPreparingWaitsForNobody(t *testing.T) {
	t.Parallel()
	onPreparing(t, "", func(t *testing.T, db *sql.DB) {
		o := sqltx.New(db, sqltx.MySQL)
		publisher := events.NewPublisher(o)
		var group sync.WaitGroup
		errs := make(chan error, 100)
		for range 10 {
			group.Go(func() {
				for range 10 {
					errs <- o.Atomically(t.Context(), func(ctx context.Context) error {
						return publisher.Publish(ctx, events.Event{Type: "t", AggregateType: "a", AggregateID: "1"})
					})
				}
			})
		}
		group.Wait()
		for range cap(errs) {
			require.NoError(t, <-errs)
		}
	})
}

// An outbox that is made for a moment leaves nothing prepared behind.
func TestMySQLStatementsOfAnOutboxGoWithIt(t *testing.T) {
	t.Parallel()
	onPreparing(t, "", func(t *testing.T, db *sql.DB) {
		for range 10 {
			o := sqltx.New(db, sqltx.MySQL)
			publisher := events.NewPublisher(o)
			for range 4 {
				require.NoError(t, o.Atomically(t.Context(), func(ctx context.Context) error {
					return publisher.Publish(ctx, events.Event{Type: "t", AggregateType: "a", AggregateID: "1"})
				}))
			}
		}
		require.Eventually(t, func() bool {
			runtime.GC()
			return sessionStatus(t, db, "Com_stmt_prepare") == sessionStatus(t, db, "Com_stmt_close")
		}, time.Minute, 10*time.Millisecond)
	})
}

// onPreparingServers runs a test on servers of its own, with a pool of many connections
// and one of somebody else.
func onPreparingServers(t *testing.T, test func(t *testing.T, db, other *sql.DB)) {
	t.Helper()
	for _, kind := range []*servers.Kind{servers.MySQL, servers.MariaDB} {
		t.Run(kind.Name, func(t *testing.T) {
			t.Parallel()
			server := servers.Private(t, kind)
			dsn := servers.CreateDatabase(t, server)
			db, other := openSQL(t, "mysql", dsn), openSQL(t, "mysql", dsn)
			db.SetMaxOpenConns(preparingConnections)
			db.SetMaxIdleConns(preparingConnections)
			require.NoError(t, sqltx.Migrate(t.Context(), db, sqltx.MySQL))
			test(t, db, other)
		})
	}
}

const preparingConnections = 4

// onEachConnection publishes in a transaction on each connection of the pool at once.
func onEachConnection(t *testing.T, o *sqltx.Outbox, write func(ctx context.Context) error) {
	t.Helper()
	var meet sync.WaitGroup
	meet.Add(preparingConnections)
	errs := make(chan error)
	for range preparingConnections {
		go func() {
			errs <- o.Atomically(t.Context(), func(ctx context.Context) error {
				err := write(ctx)
				meet.Done()
				meet.Wait()
				return err
			})
		}()
	}
	for range preparingConnections {
		require.NoError(t, <-errs)
	}
}

// keptPrepared returns how many statements the server holds.
func keptPrepared(t *testing.T, db *sql.DB) (n int) {
	t.Helper()
	var name string
	require.NoError(t, db.QueryRowContext(t.Context(), "SHOW GLOBAL STATUS LIKE 'Prepared_stmt_count'").Scan(&name, &n))
	return n
}

// distinctly returns writers whose statements differ.
func distinctly(o *sqltx.Outbox) []func(ctx context.Context) error {
	publisher := events.NewPublisher(o)
	event := events.Event{Type: "t", AggregateType: "a", AggregateID: "1"}
	return []func(ctx context.Context) error{
		func(ctx context.Context) error { return publisher.Publish(ctx, event) },
		func(ctx context.Context) error { return o.RecordNew(ctx, markerOf(events.NewID())) },
		func(ctx context.Context) error { return publisher.Publish(ctx, event, event) },
	}
}

// A server that holds no more prepared statements gets back what is kept, for others and
// for what is to run.
func TestMySQLPreparedStatementsAreGivenBackWhenTheServerIsFull(t *testing.T) {
	t.Parallel()
	onPreparingServers(t, func(t *testing.T, db, other *sql.DB) {
		o := sqltx.New(db, sqltx.MySQL)
		writes := distinctly(o)
		for range 4 {
			onEachConnection(t, o, writes[0])
		}
		full := keptPrepared(t, other)
		require.GreaterOrEqual(t, full, preparingConnections)
		runSQL(t, other, "SET GLOBAL max_prepared_stmt_count = %d", full)
		var one int
		require.ErrorContains(t, other.QueryRowContext(t.Context(), "SELECT ? + 1", 1).Scan(&one), "1461", "the server is full")
		// What is kept makes room, as soon as the server has heard of it on each connection.
		require.Eventually(t, func() bool { return o.Atomically(t.Context(), writes[2]) == nil }, time.Minute, 10*time.Millisecond)
		require.Eventually(t, func() bool { return keptPrepared(t, other) == 0 }, time.Minute, 10*time.Millisecond)
		require.NoError(t, other.QueryRowContext(t.Context(), "SELECT ? + 1", 1).Scan(&one))
		for _, write := range writes {
			for range 3 {
				require.NoError(t, o.Atomically(t.Context(), write))
			}
		}
		require.Eventually(t, func() bool { return keptPrepared(t, other) == 0 }, time.Minute, 10*time.Millisecond, "nothing is kept any more")
	})
}

// All connections that a server accepts keep half of what it holds at most.
func TestMySQLPreparedStatementsAreAPartOfWhatTheServerHolds(t *testing.T) {
	t.Parallel()
	onPreparingServers(t, func(t *testing.T, db, other *sql.DB) {
		for connections, each := range map[int]int{100: 0, 50: 1, 25: 2} {
			t.Run(fmt.Sprint(each), func(t *testing.T) {
				runSQL(t, other, "SET GLOBAL max_connections = %d", connections)
				runSQL(t, other, "SET GLOBAL max_prepared_stmt_count = 100")
				o := sqltx.New(db, sqltx.MySQL)
				for _, write := range distinctly(o) {
					for range 4 {
						onEachConnection(t, o, write)
					}
				}
				kept := each * preparingConnections
				require.Eventually(t, func() bool { return keptPrepared(t, other) == kept }, time.Minute, 10*time.Millisecond)
				runtime.KeepAlive(o)
				o = nil
				require.Eventually(t, func() bool {
					runtime.GC()
					return keptPrepared(t, other) == 0
				}, time.Minute, 10*time.Millisecond)
			})
		}
	})
}
