package matrix

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/gormtx"
	"github.com/onward-go/outbox/persistence"
	"github.com/onward-go/outbox/testdata/servers"
)

// databaseAt creates a database, which has the same name on all servers.
func databaseAt(t *testing.T, s Server, server *servers.Server, number int) (dsn string) {
	t.Helper()
	name := fmt.Sprintf("failover_%d", number)
	require.NoError(t, Open(t, s.Open(server.DSN), &gorm.Config{Logger: logger.Discard}).Exec("CREATE DATABASE "+name).Error)
	if before, after, found := strings.Cut(server.DSN, "/postgres?"); found {
		return before + "/" + name + "?" + after
	}
	return server.DSN + name
}

// replicate makes of to what a replica has that lags: the outbox's tables as they are now.
func replicate(t *testing.T, from, to *gorm.DB) {
	t.Helper()
	require.NoError(t, gormtx.New(to).Migrate(t.Context()))
	for _, table := range []string{"outbox", "outbox_cursors", "outbox_subscriptions", "outbox_idempotency"} {
		rows, err := from.Raw("SELECT * FROM " + table).Rows()
		require.NoError(t, err)
		columns, err := rows.Columns()
		require.NoError(t, err)
		values := make([]any, len(columns))
		into := make([]any, len(columns))
		for i := range values {
			into[i] = &values[i]
		}
		places := make([]string, len(columns))
		for i := range places {
			if places[i] = "?"; to.Name() == "postgres" {
				places[i] = fmt.Sprint("$", i+1)
			}
		}
		insert := "INSERT INTO " + table + " (" + strings.Join(columns, ", ") + ") VALUES (" + strings.Join(places, ", ") + ")"
		pool, err := to.DB()
		require.NoError(t, err)
		for rows.Next() {
			require.NoError(t, rows.Scan(into...))
			_, err := pool.ExecContext(t.Context(), insert, values...)
			require.NoError(t, err)
		}
		require.NoError(t, rows.Err())
		require.NoError(t, rows.Close())
	}
}

// Cursors, markers and leases are the same on both servers, even the fencing token. But
// the server to which the dispatcher comes by the same address lacks what it has seen
// committed.
func TestADispatcherOutlivesAFailoverToAReplicaThatLags(t *testing.T) {
	t.Parallel()
	for _, s := range Servers {
		if s.Kind == nil || s.Again {
			continue
		}
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			// Servers that lose nothing by themselves.
			primary, replica := servers.Private(t, s.Kind.Flushing()), servers.Private(t, s.Kind.Flushing())
			for i, when := range []string{"between two events of an aggregate", "when the cursor is saved and nothing is left to do"} {
				t.Run(when, func(t *testing.T) {
					n := newNetwork(t, primary.Addr)
					between := i == 0
					dsn := databaseAt(t, s, primary, i)
					direct := Open(t, s.Open(dsn), &gorm.Config{Logger: logger.Discard})
					other := Open(t, s.Open(databaseAt(t, s, replica, i)), &gorm.Config{Logger: logger.Discard})
					db := Open(t, s.Open(strings.Replace(dsn, primary.Addr, n.addr, 1)), &gorm.Config{Logger: logger.Discard})
					outbox := gormtx.New(db)
					require.NoError(t, outbox.Migrate(t.Context()))
					for _, each := range []*gorm.DB{direct, other} {
						require.NoError(t, each.Exec("CREATE TABLE effects (number SERIAL, id varchar(64))").Error)
					}
					entered, opened := make(chan struct{}, 1), make(chan struct{})
					open := sync.OnceFunc(func() { close(opened) })
					var failedOver atomic.Bool
					d := events.NewDispatcher(outbox, outbox, outbox, outbox, events.WithLease(3*time.Second))
					require.NoError(t, d.Subscribe("t", "effect", func(ctx context.Context, evt events.Event) error {
						select {
						case entered <- struct{}{}:
							<-opened // before the first effect
						default:
						}
						if err := gormtx.Tx(ctx).Exec("INSERT INTO effects (id) VALUES (?)", evt.ID).Error; err != nil {
							return err
						}
						return persistence.AfterCommit(ctx, func(context.Context) {
							if between && failedOver.CompareAndSwap(false, true) {
								n.lead(replica.Addr)
							}
						})
					}))
					ctx, cancel := context.WithCancel(t.Context())
					done := make(chan error, 1)
					go func() { done <- d.Poll(ctx, 20*time.Millisecond, 100, nil) }()
					defer func() {
						open()
						cancel()
						require.NoError(t, <-done)
					}()
					require.NoError(t, outbox.Atomically(t.Context(), func(ctx context.Context) error {
						return events.NewPublisher(outbox).Publish(ctx,
							events.Event{ID: "first", Type: "t", AggregateType: "a", AggregateID: "1"},
							events.Event{ID: "second", Type: "t", AggregateType: "a", AggregateID: "1"})
					}))
					<-entered
					replicate(t, direct, other)
					open()
					if !between {
						require.Eventually(t, func() bool {
							state, err := gormtx.New(direct).Load(t.Context(), events.DefaultName)
							return err == nil && state.Cursor.ID == "second"
						}, time.Minute, 10*time.Millisecond)
						n.lead(replica.Addr)
					}
					var effects []string
					require.Eventually(t, func() bool {
						effects = nil
						require.NoError(t, other.Raw("SELECT id FROM effects ORDER BY number").Scan(&effects).Error)
						return len(effects) >= 2
					}, time.Minute, 10*time.Millisecond, "they are applied again")
					require.Equal(t, []string{"first", "second"}, effects, "in order, once each")
				})
			}
		})
	}
}
