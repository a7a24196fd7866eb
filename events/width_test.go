package events_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/memstore"
	"github.com/onward-go/outbox/persistence"
)

// pooled is a store over a pool of connections, in which everything waits for one.
type pooled struct {
	*memstore.Store
	mu    sync.Mutex
	freed *sync.Cond
	limit int
	used  int
}

func newPooled(limit int) *pooled {
	p := &pooled{Store: memstore.New(), limit: limit}
	p.freed = sync.NewCond(&p.mu)
	return p
}

func (p *pooled) take() (giveBack func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.used >= p.limit {
		p.freed.Wait()
	}
	p.used++
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.used--
		p.freed.Broadcast()
	}
}

func (p *pooled) resize(limit int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.limit = limit
	p.freed.Broadcast()
}

func (p *pooled) MaxTransactions() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.limit
}

func (p *pooled) Atomically(ctx context.Context, fn func(context.Context) error) error {
	if persistence.InTransaction(ctx) {
		return p.Store.Atomically(ctx, fn)
	}
	defer p.take()()
	return p.Store.Atomically(ctx, fn)
}

func (p *pooled) Acquire(ctx context.Context, dispatcher, owner string, duration time.Duration) (persistence.Lease, error) {
	defer p.take()()
	return p.Store.Acquire(ctx, dispatcher, owner, duration)
}

func (p *pooled) Save(ctx context.Context, lease persistence.Lease, progress persistence.Progress) error {
	defer p.take()()
	return p.Store.Save(ctx, lease, progress)
}

func (p *pooled) ReadWindow(ctx context.Context, read persistence.WindowRead) (persistence.WindowPage, error) {
	defer p.take()()
	return p.Store.ReadWindow(ctx, read)
}

// Handlers that wait for their pool must not keep the dispatcher from its lease.
func TestLanesLeaveTheDispatcherItsConnections(t *testing.T) {
	for _, connections := range []int{3, 4, 10} {
		t.Run(fmt.Sprint(connections), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newPooled(connections)
				var logged bytes.Buffer
				var s seen
				var running, most atomic.Int64
				d := events.NewDispatcher(store, store, store, store, events.WithConcurrency(16), events.WithLease(9*time.Second),
					events.WithLogger(slog.New(slog.NewTextHandler(&logged, nil))), events.WithObserver(s.observer()))
				var applied log
				require.NoError(t, d.Subscribe("t", "h", applied.handler(func(context.Context, events.Event) error {
					most.Store(max(most.Load(), running.Add(1)))
					time.Sleep(10 * time.Second) // longer than the lease
					running.Add(-1)
					return nil
				})))
				for i := range 60 {
					publish(t, store.Store, of(fmt.Sprint(i), fmt.Sprint("e", i)))
				}
				r := poll(t, d, func(err error) { t.Error(err) })
				elapse(11 * time.Minute)
				require.Len(t, applied.all(), 60)
				require.Equal(t, int64(connections-2), most.Load())
				r.stop()
				for _, change := range s.leases {
					require.NotEqual(t, events.LeaseLost, change.Change)
				}
				require.Contains(t, logged.String(), fmt.Sprintf(
					`level=WARN msg="outbox: pool is small" dispatcher=default connections=%d lanes=%d concurrency=16 connections_wanted=18`, connections, connections-2))
				require.Equal(t, 1, bytes.Count(logged.Bytes(), []byte("pool is small")), "it is said once")
			})
		})
	}
}

func TestLanesFollowThePool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newPooled(10)
		var running atomic.Int64
		d := events.NewDispatcher(store, store, store, store)
		require.NoError(t, d.Subscribe("t", "h", func(context.Context, events.Event) error {
			running.Add(1)
			time.Sleep(3 * time.Second)
			running.Add(-1)
			return nil
		}))
		for i := range 600 {
			publish(t, store.Store, of(fmt.Sprint(i), fmt.Sprint("e", i)))
		}
		r := poll(t, d, nil)
		for _, step := range []struct{ connections, lanes int }{{10, 8}, {4, 2}, {100, 8}, {2, 1}, {1, 1}, {5, 3}} {
			store.resize(step.connections)
			elapse(10 * time.Second)
			require.Equal(t, int64(step.lanes), running.Load(), "of %d connections", step.connections)
		}
		r.stop()
	})
}
