package matrix

import (
	"context"
	"database/sql"
	"errors"
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
