package events_test

import (
	"context"
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

// chainCounter counts what becomes of the transactions of a store's chains.
type chainCounter struct {
	*memstore.Store
	mu           sync.Mutex
	held, failed int
}

func (w *chainCounter) Chain(persistence.Transactor) persistence.Chain {
	return countedChain{w.Store.Chain(w.Store), w}
}

type countedChain struct {
	persistence.Chain
	w *chainCounter
}

func (c countedChain) Atomically(ctx context.Context, fn func(context.Context) error, committed func(error)) (bool, error) {
	held, err := c.Chain.Atomically(ctx, fn, func(err error) {
		c.w.mu.Lock()
		if err != nil {
			c.w.failed++
		}
		c.w.mu.Unlock()
		committed(err)
	})
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	if held {
		c.w.held++
	}
	return held, err
}

// tries returns a handler that notes each try. Nothing is left to do after its
// commit, so that it can be held.
func (l *log) tries(handle events.Handler) events.Handler {
	return func(ctx context.Context, evt events.Event) error {
		l.add(evt.ID)
		if handle == nil {
			return nil
		}
		return handle(ctx, evt)
	}
}

// The transactions of handlers commit together with the begin of the next, and
// nothing waits for one that does not come.
func TestHandlersTransactionsAreChained(t *testing.T) {
	for _, concurrency := range []int{1, 3} {
		synctest.Test(t, func(t *testing.T) {
			store := memstore.New()
			w := &chainCounter{Store: store}
			var applied log
			d := events.NewDispatcher(store, store, w, store, events.WithConcurrency(concurrency))
			require.NoError(t, d.Subscribe("t", "h", applied.tries(nil)))
			r := poll(t, d, nil)
			for range 3 {
				publishMany(t, store, 20, 4)
				elapse(time.Minute)
			}
			r.stop()
			require.Len(t, applied.all(), 60)
			require.Equal(t, 60, w.held)
			require.Zero(t, w.failed)
		})
	}
}

// own is a transactor with something to do around each transaction.
type own struct {
	*memstore.Store
	transactions int
}

func (o *own) Atomically(ctx context.Context, fn func(context.Context) error) error {
	o.transactions++
	return o.Store.Atomically(ctx, fn)
}

func TestATransactorOfOnesOwnIsNotPassedBy(t *testing.T) {
	store := memstore.New()
	transactor := &own{Store: store}
	d := events.NewDispatcher(store, store, transactor, store, events.WithConcurrency(1))
	var applied log
	require.NoError(t, d.Subscribe("t", "h", applied.tries(nil)))
	publishMany(t, store, 5, 2)
	_, err := d.RunOnce(t.Context(), 5)
	require.NoError(t, err)
	require.Len(t, applied.all(), 5)
	require.Equal(t, 5, transactor.transactions)
}

// A commit that fails is a failure of its own event: what would have begun with
// it has not, and waits if it is of the same aggregate.
func TestACommitThatFailsInAChainFailsItsEventAlone(t *testing.T) {
	for _, concurrency := range []int{1, 2, 8} {
		for _, bad := range []string{"e0", "e5", "e19"} {
			t.Run(fmt.Sprint(concurrency, bad), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store := memstore.New()
					w := &chainCounter{Store: store}
					var tried log
					effects := memstore.NewTable[string, int](store)
					failures := 2
					d := events.NewDispatcher(store, store, w, store, events.WithConcurrency(concurrency), events.WithMaxAttempts(5))
					require.NoError(t, d.Subscribe("t", "h", tried.tries(func(ctx context.Context, evt events.Event) error {
						if evt.ID == bad && failures > 0 { // one lane, so one at a time
							failures--
							return store.FailCommit(ctx, errBroken)
						}
						n, _ := effects.Get(ctx, evt.ID)
						return effects.Put(ctx, evt.ID, n+1)
					})))
					publishMany(t, store, 20, 4)
					var told []error
					r := poll(t, d, func(err error) { told = append(told, err) })
					elapse(time.Minute)
					r.stop()
					require.Len(t, told, 2)
					for _, err := range told {
						require.ErrorIs(t, err, errBroken)
					}
					require.Len(t, tried.all(), 22, "nobody else is tried twice")
					left := 3 // tries of the bad one, of which the last succeeds
					requireOrder(t, slices.DeleteFunc(tried.all(), func(id string) bool {
						if id == bad {
							left--
						}
						return id == bad && left > 0
					}), 4)
					for i := range 20 {
						n, _ := effects.Get(t.Context(), fmt.Sprintf("e%d", i))
						require.Equal(t, 1, n)
					}
					require.Equal(t, "e19", load(t, store).Cursor.ID)
					require.Empty(t, load(t, store).Attempts)
				})
			})
		}
	}
}

// An event whose commit fails each time becomes a dead letter, and lets the rest
// of its aggregate go on.
func TestACommitThatAlwaysFailsInAChainIsADeadLetter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		var applied log
		d := newDispatcher(t, store, applied.tries(func(ctx context.Context, evt events.Event) error {
			if evt.ID == "e4" {
				return store.FailCommit(ctx, errBroken)
			}
			return nil
		}), events.WithConcurrency(2), events.WithMaxAttempts(3))
		publishMany(t, store, 12, 4)
		r := poll(t, d, func(error) {})
		elapse(time.Minute)
		r.stop()
		letters, err := store.ListDeadLetters(t.Context(), persistence.DeadLetterQuery{Limit: 10})
		require.NoError(t, err)
		require.Len(t, letters, 1)
		require.Equal(t, "e4", letters[0].Record.ID)
		require.Equal(t, 3, letters[0].Attempts)
		require.Len(t, applied.all(), 14)
		require.Equal(t, "e11", load(t, store).Cursor.ID)
	})
}

// While a handler runs, nobody waits for the commit of the event before.
func TestALaneGoesOnWhileTheNextHandlerRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		var applied log
		d := newDispatcher(t, store, applied.tries(func(_ context.Context, evt events.Event) error {
			if evt.AggregateID == "slow" {
				time.Sleep(30 * time.Second)
			}
			return nil
		}), events.WithConcurrency(2))
		// A goroutine goes on from the first event to the slow one, another takes
		// the busy aggregate's next events.
		publish(t, store, of("busy", "b1"), of("slow", "s1"), of("slow", "s2"))
		r := poll(t, d, nil)
		elapse(time.Second)
		require.NoError(t, store.Atomically(t.Context(), func(ctx context.Context) error {
			return events.NewPublisher(store).Publish(ctx, of("busy", "b2"), of("busy", "b3"))
		}))
		d.Wake()
		elapse(time.Second)
		require.Subset(t, applied.all(), []string{"b1", "b2", "b3"})
		elapse(2 * time.Minute)
		r.stop()
		require.Len(t, applied.all(), 5)
	})
}

// What is held when the dispatcher stops is committed.
func TestAStopLeavesNothingHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		var applied log
		running := make(chan struct{})
		d := newDispatcher(t, store, applied.tries(func(_ context.Context, evt events.Event) error {
			if evt.ID == "e3" {
				close(running)
				time.Sleep(time.Second)
			}
			return nil
		}), events.WithConcurrency(1))
		publishMany(t, store, 10, 1)
		r := poll(t, d, nil)
		<-running
		r.stop()
		require.Equal(t, []string{"e0", "e1", "e2", "e3"}, applied.all())
		require.Equal(t, "e3", load(t, store).Cursor.ID)
	})
}
