package events_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/memstore"
	"github.com/onward-go/outbox/persistence"
)

// batches remembers the batches that a handler was entered with, and what was
// applied.
type batches struct {
	log
	entered [][]string
}

func (b *batches) sizes() (sizes []int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, ids := range b.entered {
		sizes = append(sizes, len(ids))
	}
	return sizes
}

// handler applies a batch, if check lets all of it.
func (b *batches) handler(check func(context.Context, events.Event) error) events.BatchHandler {
	return func(ctx context.Context, evts []events.Event) error {
		var ids []string
		for _, evt := range evts {
			ids = append(ids, evt.ID)
		}
		b.mu.Lock()
		b.entered = append(b.entered, ids)
		b.mu.Unlock()
		for _, evt := range evts {
			if check != nil {
				if err := check(ctx, evt); err != nil {
					return err
				}
			}
		}
		return persistence.AfterCommit(ctx, func(context.Context) {
			for _, id := range ids {
				b.add(id)
			}
		})
	}
}

// poisoned refuses some events.
func poisoned(ids ...string) func(context.Context, events.Event) error {
	return func(_ context.Context, evt events.Event) error {
		if slices.Contains(ids, evt.ID) {
			return errBroken
		}
		return nil
	}
}

func newBatchDispatcher(t *testing.T, store *memstore.Store, h events.BatchHandler, opts ...events.Option) *events.Dispatcher {
	t.Helper()
	d := events.NewDispatcher(store, store, store, store, opts...)
	require.NoError(t, d.SubscribeBatch("t", "h", h))
	return d
}

// publishMany publishes events e0, e1 and so on, of that many aggregates.
func publishMany(t *testing.T, store *memstore.Store, n, aggregates int) {
	t.Helper()
	evts := make([]events.Event, n)
	for i := range evts {
		evts[i] = of(fmt.Sprint(i%aggregates), fmt.Sprintf("e%d", i))
	}
	publish(t, store, evts...)
}

// requireOrder fails unless each aggregate's events are in order.
func requireOrder(t *testing.T, applied []string, aggregates int) {
	t.Helper()
	last := map[int]int{}
	for _, id := range applied {
		var n int
		_, err := fmt.Sscanf(id, "e%d", &n)
		require.NoError(t, err)
		before, seen := last[n%aggregates]
		require.True(t, !seen || before < n, "%s was applied after e%d", id, before)
		last[n%aggregates] = n
	}
}

func TestABatchHandlerGetsWhatWaits(t *testing.T) {
	for _, concurrency := range []int{1, 4} {
		synctest.Test(t, func(t *testing.T) {
			store := memstore.New()
			var applied batches
			transactions := &countingTransactor{Transactor: store}
			d := events.NewDispatcher(store, store, transactions, store, events.WithConcurrency(concurrency), events.WithBatchSize(30))
			require.NoError(t, d.SubscribeBatch("t", "h", applied.handler(func(ctx context.Context, _ events.Event) error {
				if account := events.AccountID(ctx); account != "" {
					return fmt.Errorf("the context is that of account %q", account)
				}
				return nil
			})))
			publishMany(t, store, 100, 7)
			n, err := d.RunOnce(t.Context(), 100)
			require.NoError(t, err)
			require.Equal(t, 100, n)
			sizes := applied.sizes()
			require.Len(t, sizes, 4, "a lane is in one batch at a time, yet they are all but full")
			require.Equal(t, 30, slices.Max(sizes))
			require.EqualValues(t, 4, transactions.begun)
			require.Len(t, applied.all(), 100)
			requireOrder(t, applied.all(), 7)
			require.Equal(t, "e99", load(t, store).Cursor.ID)
		})
	}
}

func TestBatchesSideBySideAreFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		var applied batches
		apply := applied.handler(nil)
		d := newBatchDispatcher(t, store, func(ctx context.Context, evts []events.Event) error {
			time.Sleep(time.Second)
			return apply(ctx, evts)
		}, events.WithConcurrency(4), events.WithBatchSize(200))
		publishMany(t, store, 4000, 4000)
		r := pollEvery(t, time.Minute, d, func(err error) { t.Error(err) }) // reads fewer at a time
		elapse(time.Minute)
		require.Len(t, applied.all(), 4000)
		require.LessOrEqual(t, len(applied.sizes()), 4000/200+4, "only the first ones are smaller: %v", applied.sizes())
		r.stop()
	})
}

// countingTransactor counts transactions, and may refuse to begin any.
type countingTransactor struct {
	persistence.Transactor
	mu     sync.Mutex
	begun  int
	refuse bool
}

func (c *countingTransactor) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.begun
}

func (c *countingTransactor) allow() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refuse = false
}

func (c *countingTransactor) Atomically(ctx context.Context, fn func(context.Context) error) error {
	c.mu.Lock()
	c.begun++
	refused := c.refuse
	c.mu.Unlock()
	if refused {
		return errors.New("no connection")
	}
	return c.Transactor.Atomically(ctx, fn)
}

func TestABatchHandlerGetsOnlyWhatIsNotApplied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		var applied batches
		d := newBatchDispatcher(t, store, applied.handler(nil))
		publishMany(t, store, 10, 10)
		_, err := d.RunOnce(t.Context(), 10)
		require.NoError(t, err)
		publishMany(t, store, 3, 3)
		require.NoError(t, store.Rewind(t.Context(), events.DefaultName, persistence.Cursor{}))
		// Somebody else applies two of them, after the markers have been asked for.
		racing := &racingStore{Store: store, handler: "h", ids: []string{"e0", "e2"}}
		d = events.NewDispatcher(store, store, store, racing)
		require.NoError(t, d.SubscribeBatch("t", "h", applied.handler(nil)))
		n, err := d.RunOnce(t.Context(), 100)
		require.NoError(t, err)
		require.Equal(t, 13, n)
		require.Equal(t, []string{"e1"}, applied.entered[len(applied.entered)-1])
		require.Len(t, applied.all(), 11)
	})
}

// racingStore says that no marker exists, and has some written by somebody else
// before the first is.
type racingStore struct {
	*memstore.Store
	handler string
	ids     []string
}

func (r *racingStore) Record(ctx context.Context, markers ...persistence.Marker) ([]bool, error) {
	recorded, err := r.Store.Record(ctx, markers...)
	for i, m := range markers {
		if slices.Contains(r.ids, m.Event.ID) {
			recorded[i] = false
		}
	}
	return recorded, err
}

func (r *racingStore) RecordNew(ctx context.Context, marker persistence.Marker) error {
	if slices.Contains(r.ids, marker.Event.ID) {
		return persistence.ErrApplied
	}
	return r.Store.RecordNew(ctx, marker)
}

func TestBatchAndSingleHandlersOfOneType(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		var single, other log
		var many batches
		d := newBatchDispatcher(t, store, many.handler(poisoned("e4")), events.WithMaxAttempts(3))
		require.NoError(t, d.Subscribe("t", "single", single.handler(poisoned("e3"))))
		require.NoError(t, d.Subscribe("t", "other", other.handler(nil)))
		publishMany(t, store, 50, 5)
		r := poll(t, d, func(error) {})
		elapse(time.Second)
		// What fails lets the event's other handlers run, and its aggregate wait.
		for aggregate, at := range map[int][3]bool{3: {true, false, true}, 4: {false, true, true}} {
			id := fmt.Sprintf("e%d", aggregate)
			require.Equal(t, at, [3]bool{
				slices.Contains(many.all(), id), slices.Contains(single.all(), id), slices.Contains(other.all(), id),
			}, id)
			require.NotContains(t, many.all(), fmt.Sprintf("e%d", aggregate+5))
		}
		require.Len(t, other.all(), 32)
		elapse(time.Hour)
		for _, applied := range [][]string{many.all(), single.all()} {
			require.Len(t, applied, 49)
			requireOrder(t, applied, 5)
		}
		require.Len(t, other.all(), 50)
		requireOrder(t, other.all(), 5)
		r.stop()
		require.Equal(t, "e49", load(t, store).Cursor.ID)
	})
}

func TestBatchesOfTwoHandlersKeepAnAggregatesOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		var applied batches
		d := newBatchDispatcher(t, store, applied.handler(nil))
		require.NoError(t, d.SubscribeBatch("u", "h", applied.handler(nil)))
		var evts []events.Event
		for i := range 60 {
			evt := of(fmt.Sprint(i%5), fmt.Sprintf("e%d", i))
			if i/5%3 == 2 {
				evt.Type = "u"
			}
			evts = append(evts, evt)
		}
		publish(t, store, evts...)
		n, err := d.RunOnce(t.Context(), 100)
		require.NoError(t, err)
		require.Equal(t, 60, n)
		require.Len(t, applied.all(), 60)
		requireOrder(t, applied.all(), 5)
		require.Greater(t, slices.Max(applied.sizes()), 5)
	})
}
