package events_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/memstore"
	"github.com/onward-go/outbox/persistence"
)

func TestAPoisonedEventCostsABatchFewTransactions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		var applied batches
		d := newBatchDispatcher(t, store, applied.handler(poisoned("e37")), events.WithConcurrency(4))
		publishMany(t, store, 64, 64)
		publish(t, store, of("37", "e101")) // is the last of 65
		var failures []error
		r := poll(t, d, func(err error) { failures = append(failures, err) })
		elapse(500 * time.Millisecond)
		require.Len(t, applied.all(), 63)
		// 65, and two halves each time: of 33, 17, 9, 5, 3, 2 and 1.
		require.LessOrEqual(t, len(applied.sizes()), 1+2*7)
		require.Len(t, failures, 1)
		require.ErrorIs(t, failures[0], errBroken)
		require.ErrorContains(t, failures[0], "event e37")
		require.Len(t, load(t, store).Attempts, 1)
		elapse(5 * time.Minute)
		require.Contains(t, applied.all(), "e101")
		letters, err := store.ListDeadLetters(t.Context(), persistence.DeadLetterQuery{Limit: 10})
		require.NoError(t, err)
		require.Len(t, letters, 1)
		require.Equal(t, "e37", letters[0].Record.ID)
		require.Equal(t, events.DefaultMaxAttempts, letters[0].Attempts)
		r.stop()
		require.Equal(t, "e101", load(t, store).Cursor.ID)
	})
}

func TestABatchStopsAtTheFailingEventOfTheSingleLane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		var applied batches
		d := newBatchDispatcher(t, store, applied.handler(poisoned("e5")), events.WithConcurrency(1))
		publishMany(t, store, 10, 10)
		for range 3 { // it is tried once in a pass
			_, err := d.RunOnce(t.Context(), 100)
			require.ErrorIs(t, err, errBroken)
			require.Equal(t, []string{"e0", "e1", "e2", "e3", "e4"}, applied.all())
		}
		require.Equal(t, 3, load(t, store).Attempts[0].Attempts)
	})
}

func TestABatchThatCannotBeginIsNotHalved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		var applied batches
		transactions := &countingTransactor{Transactor: store, refuse: true}
		d := events.NewDispatcher(store, store, transactions, store, events.WithConcurrency(2))
		require.NoError(t, d.SubscribeBatch("t", "h", applied.handler(nil)))
		publishMany(t, store, 64, 64)
		r := poll(t, d, func(error) {})
		elapse(100 * time.Millisecond)
		require.Equal(t, 1, transactions.count())
		elapse(20 * time.Second)
		require.Empty(t, load(t, store).Attempts)
		transactions.allow()
		elapse(time.Minute)
		require.Len(t, applied.all(), 64)
		r.stop()
	})
}

func TestABatchThatTakesTooLongIsHalved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		var applied batches
		slow := func(ctx context.Context, _ events.Event) error {
			select {
			case <-time.After(time.Second):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		d := newBatchDispatcher(t, store, applied.handler(slow), events.WithHandlerTimeout(10*time.Second))
		publishMany(t, store, 64, 64)
		r := poll(t, d, func(err error) { t.Error(err) })
		elapse(10 * time.Minute)
		require.Equal(t, []int{64, 32, 16, 8, 8, 16, 8, 8, 32, 16, 8, 8, 16, 8, 8}, applied.sizes())
		require.Len(t, applied.all(), 64)
		r.stop()
	})
}

func TestABatchIsCutOffWithItsDispatcher(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		var applied batches
		hang := func(ctx context.Context, evt events.Event) error {
			<-ctx.Done()
			return ctx.Err()
		}
		d := newBatchDispatcher(t, store, applied.handler(hang), events.WithShutdownGrace(time.Second))
		publishMany(t, store, 64, 64)
		r := poll(t, d, func(err error) { t.Error(err) })
		elapse(time.Second)
		r.stop()
		require.Equal(t, []int{64}, applied.sizes(), "no half of it is started")
		require.Empty(t, load(t, store).Attempts)
		require.Empty(t, load(t, store).Lease.Owner)

		d = newBatchDispatcher(t, store, applied.handler(nil))
		n, err := d.RunOnce(t.Context(), 100)
		require.NoError(t, err)
		require.Equal(t, 64, n)
		require.Len(t, applied.all(), 64)
	})
}

func TestABatchHandlerThatEndsItsProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		publishMany(t, store, 20, 20)
		// The process has ended without releasing the lease.
		d := newBatchDispatcher(t, store, func(context.Context, []events.Event) error { return nil })
		_, err := d.RunOnce(t.Context(), 1)
		require.NoError(t, err)
		_, err = store.Acquire(t.Context(), events.DefaultName, "dead", 0)
		require.NoError(t, err)
		var applied batches
		d = newBatchDispatcher(t, store, applied.handler(func(_ context.Context, evt events.Event) error {
			// Each try was counted before it.
			if attempts := load(t, store).Attempts; len(attempts) == 0 || attempts[len(attempts)-1].Attempts != 1 {
				return fmt.Errorf("the try of event %s was not counted", evt.ID)
			}
			return nil
		}), events.WithConcurrency(1))
		_, err = d.RunOnce(t.Context(), 100)
		require.NoError(t, err)
		require.Equal(t, slices.Repeat([]int{1}, 19), applied.sizes())
		require.Empty(t, load(t, store).Attempts)
	})
}

func TestAPanicInABatchIsItsError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		var applied batches
		d := newBatchDispatcher(t, store, applied.handler(func(_ context.Context, evt events.Event) error {
			if evt.ID == "e1" {
				panic("at the disco")
			}
			return nil
		}))
		publishMany(t, store, 4, 4)
		_, err := d.RunOnce(t.Context(), 100)
		require.ErrorContains(t, err, "event e1")
		require.ErrorContains(t, err, "at the disco")
		require.ElementsMatch(t, []string{"e0", "e2", "e3"}, applied.all())
	})
}
