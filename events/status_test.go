package events_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/memstore"
	"github.com/onward-go/outbox/persistence"
)

func statusOf(t *testing.T, d *events.Dispatcher) events.Status {
	t.Helper()
	status, err := d.Status(context.Background())
	require.NoError(t, err)
	return status
}

func TestStatusOfADispatcherThatDoesNotWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		d := newDispatcher(t, store, func(context.Context, events.Event) error { return nil })
		publish(t, store, event("a"))
		status := statusOf(t, d)
		require.True(t, status.New)
		require.Equal(t, events.DefaultName, status.Dispatcher)
		require.False(t, status.Now.IsZero())
		require.False(t, status.Working || status.Lease.Held)
		require.Zero(t, status.Lag)
		require.NotNil(t, status.DeadLetters)
		require.Empty(t, status.Unread)
		elapse(time.Minute)
		n, err := d.RunOnce(t.Context(), 10)
		require.NoError(t, err)
		require.Equal(t, 1, n)
		status = statusOf(t, d)
		require.False(t, status.New)
		require.False(t, status.Polling || status.Working || status.Lease.Held)
		require.Nil(t, status.Window)
		require.Zero(t, status.Lag)
		publish(t, store, event("b"))
		elapse(time.Minute)
		status = statusOf(t, d)
		require.InDelta(t, 60, status.Lag.Duration().Seconds(), 1)
		require.Equal(t, events.DefaultName, status.Dispatcher)
		require.Equal(t, persistence.Count{N: 1}, status.After)
	})
}

func TestStatusTellsWhatHoldsTheCursorAndNothingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		d := newDispatcher(t, store, func(_ context.Context, evt events.Event) error {
			if evt.ID == "poison" {
				return errBroken
			}
			return nil
		}, events.WithBackoff(time.Minute, time.Minute))
		running := poll(t, d, nil)
		evts := []events.Event{of("bad", "poison"), of("good", "a"), of("bad", "behind"), of("good", "b")}
		for i := range evts {
			evts[i].Payload = []byte("secret")
		}
		publish(t, store, evts...)
		elapse(10 * time.Second)
		status := statusOf(t, d)
		require.True(t, status.Polling && status.Working && status.Lease.Held)
		require.Equal(t, status.Self, status.Lease.Owner)
		w := status.Window
		require.Equal(t, events.HeldByEvent, w.HeldBy)
		require.Equal(t, "poison", w.Oldest.Event.ID)
		require.Equal(t, "bad", w.Oldest.AggregateID)
		require.Equal(t, w.Oldest.Age, status.Lag)
		require.InDelta(t, 10, status.Lag.Duration().Seconds(), 1)
		require.Equal(t, []int{4, 2, 1, 0, 0}, []int{w.Events, w.Settled, w.Parked, w.Running, w.Queued})
		require.EqualValues(t, 2*len("secret"), w.Bytes, "of what is not delivered")
		require.False(t, w.Full)
		require.Len(t, status.Failing, 1)
		require.Equal(t, "broken", status.Failing[0].LastError)
		text, err := json.Marshal(status)
		require.NoError(t, err)
		require.Contains(t, string(text), `"held_by":"event"`)
		require.Contains(t, string(text), `"lag_seconds":`)
		require.NotContains(t, string(text), "secret")
		require.NotContains(t, string(text), base64.StdEncoding.EncodeToString([]byte("secret")))
		running.stop()
		status = statusOf(t, d)
		require.False(t, status.Polling || status.Working || status.Lease.Held)
	})
}

func TestStatusTellsOfARunningHandlerAndAFullWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		release := make(chan struct{})
		d := newDispatcher(t, store, func(context.Context, events.Event) error { <-release; return nil },
			events.WithWindow(3, 1<<20), events.WithConcurrency(2))
		running := poll(t, d, nil)
		for i := range 5 {
			publish(t, store, of(fmt.Sprint(i), fmt.Sprint(i)))
		}
		elapse(5 * time.Second)
		w := statusOf(t, d).Window
		require.True(t, w.Full)
		require.Equal(t, []int{3, 0, 0, 2, 3}, []int{w.Events, w.Settled, w.Parked, w.Running, w.Queued})
		close(release)
		elapse(5 * time.Second)
		status := statusOf(t, d)
		require.Zero(t, status.Lag)
		require.Zero(t, status.Window.Events)
		require.Empty(t, status.Window.HeldBy)
		running.stop()
	})
}

// heldStatus is a memory store that tells of a producer.
type heldStatus struct {
	*memstore.Store
	since time.Time
}

func (h heldStatus) ReadStatus(ctx context.Context, names ...string) (persistence.Status, error) {
	status, err := h.Store.ReadStatus(ctx, names...)
	status.Mark = h.since
	status.Producers = []persistence.ProducerStatus{{Began: h.since, PID: 42}}
	return status, err
}

func TestStatusTellsOfAProducerThatHoldsTheCursor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		held := &heldOutbox{OutboxStore: store}
		since := time.Now().UTC()
		held.since.Store(&since)
		d := events.NewDispatcher(held, heldStatus{store, since}, store, store)
		require.NoError(t, d.Subscribe("t", "h", func(context.Context, events.Event) error { return nil }))
		running := poll(t, d, nil)
		publish(t, store, event("a"), event("b"))
		elapse(time.Minute)
		status := statusOf(t, d)
		require.Equal(t, events.HeldByProducer, status.Window.HeldBy)
		require.Equal(t, 2, status.Window.Settled)
		require.Zero(t, status.Lag, "all of it is delivered")
		require.Equal(t, persistence.Count{N: 2}, status.After)
		standby := events.NewDispatcher(held, heldStatus{store, since}, store, store)
		require.Zero(t, statusOf(t, standby).Lag, "what the mark holds back may well be delivered")
		running.stop()
	})
}

// partial is a memory store of whose status a part cannot be read, and which cannot read
// events on request.
type partial struct {
	*memstore.Store
	part     persistence.StatusPart
	unread   bool
	unwindow bool
}

var errDenied = errors.New("permission denied")

func (p *partial) ReadStatus(ctx context.Context, names ...string) (persistence.Status, error) {
	status, err := p.Store.ReadStatus(ctx, names...)
	if p.unread {
		if p.part == persistence.StatusDispatchers {
			status.Dispatchers = nil
		}
		status.Unread = append(status.Unread, persistence.UnreadPart{Part: p.part, Error: errDenied.Error()})
	}
	return status, err
}

func (p *partial) ReadWindow(ctx context.Context, read persistence.WindowRead) (persistence.WindowPage, error) {
	if p.unwindow {
		return persistence.WindowPage{}, errDenied
	}
	return p.Store.ReadWindow(ctx, read)
}

// What cannot be read is named, and so is the lag if it hangs on it; the rest is told.
func TestStatusTellsWhatItCanRead(t *testing.T) {
	for part, lag := range map[persistence.StatusPart]bool{
		persistence.StatusMark: true, persistence.StatusDispatchers: true, persistence.StatusAfter: true, persistence.StatusBehind: true,
		persistence.StatusProducers: false, persistence.StatusPartitions: false, persistence.StatusFailing: false, persistence.StatusDeadLetters: false,
	} {
		synctest.Test(t, func(t *testing.T) {
			store := &partial{Store: memstore.New(), part: part}
			d := events.NewDispatcher(store, store, store, store)
			require.NoError(t, d.Subscribe("t", "h", func(context.Context, events.Event) error { return nil }))
			_, err := d.RunOnce(t.Context(), 1)
			require.NoError(t, err)
			publish(t, store.Store, event("a"))
			elapse(time.Minute)
			store.unread = true
			status := statusOf(t, d)
			want := []persistence.StatusPart{part}
			if lag {
				want = append(want, persistence.StatusLag)
				require.Zero(t, status.Lag)
			} else {
				require.InDelta(t, 60, status.Lag.Duration().Seconds(), 1)
			}
			require.False(t, status.New, part)
			require.Equal(t, events.DefaultName, status.Dispatcher)
			got := []persistence.StatusPart{}
			for _, u := range status.Unread {
				got = append(got, u.Part)
			}
			require.Equal(t, want, got)
		})
	}
}

// Who works and has delivered all it has read looks for more, which may not be possible.
func TestStatusTellsWhatItCanReadWhileItWorks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &partial{Store: memstore.New()}
		d := events.NewDispatcher(store, store, store, store)
		require.NoError(t, d.Subscribe("t", "h", func(context.Context, events.Event) error { return nil }))
		running := poll(t, d, nil)
		elapse(time.Second)
		store.unwindow = true
		status := statusOf(t, d)
		store.unwindow = false
		require.True(t, status.Working)
		require.NotNil(t, status.Window)
		require.Equal(t, []persistence.UnreadPart{{Part: persistence.StatusLag, Of: events.DefaultName, Error: errDenied.Error()}}, status.Unread)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := d.Status(ended)
		require.ErrorIs(t, err, context.Canceled, "nobody waits for the rest")
		running.stop()
	})
}

func TestStatusNeedsAStoreThatReadsIt(t *testing.T) {
	store := memstore.New()
	blind := struct{ persistence.OutboxCursorStore }{store}
	_, err := events.NewDispatcher(store, blind, store, store).Status(t.Context())
	require.ErrorIs(t, err, errors.ErrUnsupported)
	_, err = events.NewDispatcher(store, store, store, store, events.WithConcurrency(0)).Status(t.Context())
	require.ErrorIs(t, err, persistence.ErrInvalid)
}

func TestStatusWhileEventsAreDelivered(t *testing.T) {
	store := memstore.New()
	delivered := make(chan struct{}, 1000)
	d := newDispatcher(t, store, func(context.Context, events.Event) error { delivered <- struct{}{}; return nil })
	running := pollEvery(t, time.Millisecond, d, nil)
	for i := range 500 {
		publish(t, store, of(fmt.Sprint(i%7), fmt.Sprint(i)))
		require.LessOrEqual(t, statusOf(t, d).After.N, i+1)
	}
	for range 500 {
		<-delivered
	}
	running.stop()
}
