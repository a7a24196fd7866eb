package events_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/memstore"
	"github.com/onward-go/outbox/persistence"
)

func publish(t *testing.T, store *memstore.Store, evts ...events.Event) {
	t.Helper()
	require.NoError(t, store.Atomically(context.Background(), func(ctx context.Context) error {
		return events.NewPublisher(store).Publish(ctx, evts...)
	}))
}

func event(id string) events.Event {
	return events.Event{ID: id, Type: "t", AggregateType: "User", AggregateID: "1"}
}

func TestPollDeliversWithinAnInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		delivered := make(chan string, 10)
		d := events.NewDispatcher(store, store, store, store)
		require.NoError(t, d.Subscribe("t", "h", func(_ context.Context, evt events.Event) error {
			delivered <- evt.ID
			return nil
		}))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- d.Poll(ctx, time.Second, 2, nil) }()
		synctest.Wait()
		publish(t, store, event("a"), event("b"), event("c"), event("d"), event("e"))
		synctest.Wait()
		require.Empty(t, delivered, "the interval has not passed")
		time.Sleep(time.Second)
		synctest.Wait()
		require.Len(t, delivered, 5, "a full batch is followed by the next at once")
		for _, want := range []string{"a", "b", "c", "d", "e"} {
			require.Equal(t, want, <-delivered)
		}
		cancel()
		require.NoError(t, <-done)
	})
}

func TestPollReportsErrorsAndGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		broken := errors.New("broken")
		failures := 2
		d := events.NewDispatcher(store, store, store, store)
		require.NoError(t, d.Subscribe("t", "h", func(context.Context, events.Event) error {
			if failures--; failures >= 0 {
				return broken
			}
			return nil
		}))
		publish(t, store, event("a"))
		ctx, cancel := context.WithCancel(t.Context())
		var reported []error
		done := make(chan error)
		start := time.Now()
		go func() {
			done <- d.Poll(ctx, time.Second, 10, func(err error) { reported = append(reported, err) })
		}()
		time.Sleep(10 * time.Second)
		cancel()
		require.NoError(t, <-done)
		require.Len(t, reported, 2)
		require.ErrorIs(t, reported[0], broken)
		state, err := store.Load(context.Background(), events.DefaultName)
		require.NoError(t, err)
		require.Equal(t, "a", state.Cursor.ID)
		require.Equal(t, 10*time.Second, time.Since(start))
	})
}

func TestPollStopsInTheMiddleOfABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		publish(t, store, event("a"), event("b"))
		ctx, cancel := context.WithCancel(t.Context())
		d := events.NewDispatcher(store, store, store, store)
		require.NoError(t, d.Subscribe("t", "h", func(ctx context.Context, evt events.Event) error {
			cancel()
			<-ctx.Done()
			return ctx.Err()
		}))
		require.NoError(t, d.Poll(ctx, time.Second, 10, func(err error) { t.Error(err) }))
		state, err := store.Load(context.Background(), events.DefaultName)
		require.NoError(t, err)
		require.True(t, state.Cursor.IsZero())
		require.Empty(t, state.Attempts, "a cancelled dispatcher spends no attempt")
	})
}

func TestPassesOfOneDispatcherRunOneAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		publish(t, store, event("a"))
		running, runs := 0, 0
		d := events.NewDispatcher(store, store, store, store)
		require.NoError(t, d.Subscribe("t", "h", func(context.Context, events.Event) error {
			running++
			runs++
			require.Equal(t, 1, running)
			time.Sleep(time.Second)
			running--
			return nil
		}))
		results := make(chan int)
		for range 2 {
			go func() {
				n, err := d.RunOnce(t.Context(), 10)
				require.NoError(t, err)
				results <- n
			}()
		}
		require.Equal(t, 1, <-results+<-results)
		require.Equal(t, 1, runs)

		// Waiting for the other pass ends with the context.
		publish(t, store, event("b"))
		go func() { _, _ = d.RunOnce(t.Context(), 10) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, err := d.RunOnce(ctx, 10)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		time.Sleep(time.Second)
	})
}

func TestLogsAreConstantMessagesWithoutPayloads(t *testing.T) {
	store := memstore.New()
	var log strings.Builder
	d := events.NewDispatcher(store, store, store, store, events.WithMaxAttempts(2),
		events.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	require.NoError(t, d.Subscribe("t", "h", func(context.Context, events.Event) error { return errors.New("broken") }))
	evt := event("a")
	evt.Payload = []byte("secret")
	publish(t, store, evt)
	for range 2 {
		_, err := d.RunOnce(t.Context(), 10)
		require.Error(t, err)
	}
	require.Contains(t, log.String(), `level=WARN msg="outbox: handler failed" dispatcher=default event_id=a event_type=t aggregate_type=User aggregate_id=1 handler=h attempts=1 max_attempts=2 error=broken`)
	require.Contains(t, log.String(), `level=ERROR msg="outbox: event dead-lettered" dispatcher=default event_id=a`)
	require.NotContains(t, log.String(), "secret")
}

func TestAForgottenDispatcherStartsWhereItsOptionSays(t *testing.T) {
	store := memstore.New()
	var delivered []string
	d := events.NewDispatcher(store, store, store, store, events.WithStartNow())
	require.NoError(t, d.Subscribe("t", "h", func(_ context.Context, evt events.Event) error {
		delivered = append(delivered, evt.ID)
		return nil
	}))
	publish(t, store, event("history"))
	for _, id := range []string{"a", "b"} {
		_, err := d.RunOnce(t.Context(), 10)
		require.NoError(t, err)
		publish(t, store, event(id))
		_, err = d.RunOnce(t.Context(), 10)
		require.NoError(t, err)
		require.NoError(t, store.Forget(t.Context(), events.DefaultName))
	}
	require.Equal(t, []string{"a", "b"}, delivered)
}

type panicking struct{}

func (*panicking) Error() string { panic("in Error") }

func TestAnErrorThatPanicsIsAFailure(t *testing.T) {
	store := memstore.New()
	publish(t, store, event("a"))
	d := events.NewDispatcher(store, store, store, store, events.WithMaxAttempts(1))
	require.NoError(t, d.Subscribe("t", "h", func(context.Context, events.Event) error { return &panicking{} }))
	_, err := d.RunOnce(t.Context(), 10)
	require.ErrorIs(t, err, events.ErrDeadLettered)
}

func TestAHandlerThatRunsItsOwnDispatcherIsRefused(t *testing.T) {
	store := memstore.New()
	publish(t, store, event("a"))
	d := events.NewDispatcher(store, store, store, store)
	var inHandler, inHook error
	require.NoError(t, d.Subscribe("t", "h", func(ctx context.Context, _ events.Event) error {
		_, inHandler = d.RunOnce(ctx, 1)
		return persistence.AfterCommit(ctx, func(ctx context.Context) { _, inHook = d.RunOnce(ctx, 1) })
	}))
	_, err := d.RunOnce(t.Context(), 10)
	require.NoError(t, err)
	require.ErrorIs(t, inHandler, persistence.ErrInTransaction)
	require.ErrorIs(t, inHook, persistence.ErrInTransaction)
}

// countingStore counts the markers that handlers' transactions try to write, and the
// queries for those that exist.
type countingStore struct {
	persistence.IdempotencyStore
	recorded, asked int
}

func (c *countingStore) Applied(ctx context.Context, markers ...persistence.Marker) ([]bool, error) {
	c.asked++
	return c.IdempotencyStore.Applied(ctx, markers...)
}

func (c *countingStore) Record(ctx context.Context, markers ...persistence.Marker) ([]bool, error) {
	c.recorded += len(markers)
	return c.IdempotencyStore.Record(ctx, markers...)
}

func (c *countingStore) RecordNew(ctx context.Context, marker persistence.Marker) error {
	c.recorded++
	return c.IdempotencyStore.RecordNew(ctx, marker)
}

// It is asked what a former holder has applied as long as there is some.
func TestABacklogThatNobodyHasAppliedIsNotAskedAbout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		publishMany(t, store, 1000, 10)
		pass := func() (recorded, asked int) {
			counting := &countingStore{IdempotencyStore: store}
			d := events.NewDispatcher(store, store, store, counting, events.WithConcurrency(1))
			require.NoError(t, d.Subscribe("t", "h", nothing))
			r := pollEvery(t, 50*time.Millisecond, d, nil)
			elapse(time.Minute)
			r.stop()
			return counting.recorded, counting.asked
		}
		recorded, asked := pass()
		require.Equal(t, 1000, recorded)
		require.Equal(t, 1, asked)
		require.NoError(t, store.Rewind(t.Context(), events.DefaultName, persistence.Cursor{}))
		recorded, asked = pass()
		require.Zero(t, recorded)
		require.Greater(t, asked, 5)
	})
}

func TestARestartSkipsWhatIsAppliedWithoutATransaction(t *testing.T) {
	store := memstore.New()
	counting := &countingStore{IdempotencyStore: store}
	broken := true
	start := func() *events.Dispatcher {
		d := events.NewDispatcher(store, store, store, counting)
		require.NoError(t, d.Subscribe("t", "works", nothing))
		require.NoError(t, d.Subscribe("t", "fails", func(context.Context, events.Event) error {
			if broken {
				return errors.New("broken")
			}
			return nil
		}))
		return d
	}
	publish(t, store, event("a"))
	d := start()
	for range 2 { // the second pass re-reads the event, and only tries what failed
		_, err := d.RunOnce(t.Context(), 10)
		require.Error(t, err)
	}
	require.Equal(t, 3, counting.recorded)
	broken = false
	_, err := start().RunOnce(t.Context(), 10)
	require.NoError(t, err)
	require.Equal(t, 4, counting.recorded)
}
