package events_test

import (
	"context"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/memstore"
	"github.com/onward-go/outbox/persistence"
)

// A handler that ends its goroutine takes nothing with it: neither the event's
// other handlers nor the events that the goroutine would have gone on with.
func TestAHandlerThatEndsItsGoroutineFailsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		var before, after log
		d := events.NewDispatcher(store, store, store, store, events.WithConcurrency(2), events.WithMaxAttempts(3))
		exits := func(_ context.Context, evt events.Event) error {
			if evt.ID == "e3" {
				runtime.Goexit()
			}
			return nil
		}
		require.NoError(t, d.Subscribe("t", "a-before", before.handler(nil)))
		require.NoError(t, d.Subscribe("t", "b-exits", exits))
		require.NoError(t, d.Subscribe("t", "c-after", after.handler(nil)))
		publishMany(t, store, 12, 4)
		var failures []error
		r := poll(t, d, func(err error) { failures = append(failures, err) })
		elapse(time.Minute)
		r.stop()
		for _, applied := range []*log{&before, &after} {
			require.Len(t, applied.all(), 12)
			requireOrder(t, applied.all(), 4)
		}
		requireLetter(t, store, "e3", 3)
		require.Len(t, failures, 3, "each try is told of once")
		require.Equal(t, "e11", load(t, store).Cursor.ID)
	})
}

func TestABatchHandlerThatEndsItsGoroutineCostsItsEventAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		var applied batches
		d := newBatchDispatcher(t, store, func(ctx context.Context, evts []events.Event) error {
			if slices.ContainsFunc(evts, func(evt events.Event) bool { return evt.ID == "e5" }) {
				runtime.Goexit()
			}
			return applied.handler(nil)(ctx, evts)
		}, events.WithConcurrency(3), events.WithMaxAttempts(3))
		publishMany(t, store, 40, 10)
		r := poll(t, d, nil)
		elapse(time.Minute)
		r.stop()
		require.Len(t, applied.all(), 39)
		requireOrder(t, applied.all(), 10)
		requireLetter(t, store, "e5", 3)
		require.Equal(t, "e39", load(t, store).Cursor.ID)
	})
}

func TestRunOnceOutlivesAHandlerThatEndsItsGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		tries := 0
		d := newDispatcher(t, store, func(context.Context, events.Event) error {
			tries++
			runtime.Goexit()
			return nil
		})
		publish(t, store, event("e0"))
		_, err := d.RunOnce(t.Context(), 10)
		require.ErrorContains(t, err, "runtime.Goexit")
		require.Equal(t, 1, tries)
		require.Equal(t, 1, load(t, store).Attempts[0].Attempts)
	})
}

// requireLetter fails unless there is one dead letter, of an event that has so
// many attempts.
func requireLetter(t *testing.T, store *memstore.Store, id string, attempts int) {
	t.Helper()
	letters, err := store.ListDeadLetters(t.Context(), persistence.DeadLetterQuery{Limit: 10})
	require.NoError(t, err)
	require.Len(t, letters, 1)
	require.Equal(t, id, letters[0].Record.ID)
	require.Equal(t, attempts, letters[0].Attempts)
	require.Contains(t, letters[0].LastError, "runtime.Goexit")
}
