package events_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/eventstest"
	"github.com/onward-go/outbox/memstore"
	"github.com/onward-go/outbox/persistence"
)

// leftUnclean runs a dispatcher until each of the events has failed, and lets its
// lease expire.
func leftUnclean(t *testing.T, store *memstore.Store, opts ...events.Option) {
	t.Helper()
	var faults eventstest.Faults
	d := events.NewDispatcher(store, faults.Cursors(store), store, store, opts...)
	require.NoError(t, d.Subscribe("t", "h", func(context.Context, events.Event) error { return errBroken }))
	faults.Fail("Release", eventstest.ErrLost)
	_, err := d.RunOnce(t.Context(), 100)
	require.ErrorIs(t, err, eventstest.ErrLost)
	time.Sleep(2 * events.DefaultLease)
}

// Events that may have ended a process run one at a time, in turn with all others: with a
// single lane, too, they delay nobody for longer than a try.
func TestEventsThatMayEndAProcessDelayNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		publish(t, store, of("a", "a"), of("b", "b"))
		leftUnclean(t, store)
		var applied log
		d := events.NewDispatcher(store, store, narrow{store}, store,
			events.WithBackoff(time.Millisecond, 10*time.Millisecond), events.WithMaxAttempts(1_000_000))
		require.NoError(t, d.Subscribe("t", "h", func(ctx context.Context, evt events.Event) error {
			if evt.ID == "c" {
				return persistence.AfterCommit(ctx, func(context.Context) { applied.add(evt.ID) })
			}
			time.Sleep(50 * time.Millisecond)
			return errBroken
		}))
		r := poll(t, d, nil)
		elapse(30 * time.Second)
		publish(t, store, of("c", "c"))
		elapse(2 * time.Second)
		require.Equal(t, []string{"c"}, applied.all())
		r.stop()
	})
}

// One of them whose handler does not return holds back its own aggregate alone.
func TestAHandlerThatNeverReturnsDelaysNoOtherSuspect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		publish(t, store, of("bad", "bad"), of("good", "good"))
		leftUnclean(t, store)
		var applied log
		hang := make(chan struct{})
		d := events.NewDispatcher(store, store, store, store)
		require.NoError(t, d.Subscribe("t", "h", func(ctx context.Context, evt events.Event) error {
			if evt.ID == "bad" {
				<-hang
				return errBroken
			}
			return persistence.AfterCommit(ctx, func(context.Context) { applied.add(evt.ID) })
		}))
		r := poll(t, d, nil)
		elapse(2 * events.DefaultHandlerTimeout)
		require.Equal(t, []string{"good"}, applied.all())
		close(hang)
		r.stop()
	})
}

// A try that is counted before it, and that a fault cuts off, spends no attempt.
func TestAFaultAfterAnUncleanTakeoverSpendsNoAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		publish(t, store, event("settled"))
		leftUnclean(t, store, events.WithMaxAttempts(1))
		publish(t, store, event("a"))
		var faults eventstest.Faults
		faults.Fail("RecordNew", eventstest.ErrLost)
		var applied log
		d := events.NewDispatcher(store, store, store, faults.Idempotency(store), events.WithMaxAttempts(1))
		require.NoError(t, d.Subscribe("t", "h", applied.handler(nil)))
		r := poll(t, d, nil)
		elapse(time.Minute)
		require.Equal(t, []string{"a"}, applied.all())
		letters, err := store.ListDeadLetters(t.Context(), persistence.DeadLetterQuery{Limit: 10})
		require.NoError(t, err)
		require.Len(t, letters, 1, "of the former holder")
		r.stop()
	})
}
