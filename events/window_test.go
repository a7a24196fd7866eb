package events_test

import (
	"context"
	"fmt"
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/memstore"
	"github.com/onward-go/outbox/persistence"
)

// heldOutbox is an outbox in which a producer has been open since a time.
type heldOutbox struct {
	persistence.OutboxStore
	since atomic.Pointer[time.Time]
	// beyond is the mark without it, where the store can tell.
	beyond atomic.Pointer[time.Time]
	// held is how many reads have left out what it holds back.
	held atomic.Int64
	// counted is how many reads have told a number instead of positions, and
	// miscounted how many a wrong one.
	counted, miscounted atomic.Int64
}

func (h *heldOutbox) ReadWindow(ctx context.Context, read persistence.WindowRead) (persistence.WindowPage, error) {
	if read.Counted.Compare(read.After) > 0 {
		h.counted.Add(1)
		all, err := h.OutboxStore.ReadWindow(ctx, persistence.WindowRead{After: read.After, Frontier: read.Counted, LateLimit: math.MaxInt})
		if err != nil {
			return persistence.WindowPage{}, err
		}
		known, before := 0, 0
		for _, r := range all.Records {
			if c := r.Cursor(); c.Compare(read.Counted) <= 0 && read.Known(c) {
				known++
				if r.CreatedTime.Before(read.Holdouts.Beyond) {
					before++
				}
			}
		}
		if known != read.Count || before != read.CountHeld {
			h.miscounted.Add(1)
		}
		if len(read.Holdouts.Transactions) > 0 && h.since.Load() != nil {
			h.held.Add(1)
			isKnown := read.Known
			read.Known = func(c persistence.Cursor) bool {
				return c.Compare(read.Counted) <= 0 && c.CreatedTime.Before(read.Holdouts.Beyond) || isKnown(c)
			}
		}
	}
	return h.OutboxStore.ReadWindow(ctx, read)
}

func (h *heldOutbox) SafeMark(ctx context.Context) (persistence.SafeMark, error) {
	mark, err := h.OutboxStore.SafeMark(ctx)
	if since := h.since.Load(); since != nil {
		mark.Time = *since
		if beyond := h.beyond.Load(); beyond != nil {
			mark.Holdouts = persistence.Holdouts{Transactions: []string{"open"}, Beyond: *beyond}
		}
	}
	return mark, err
}

func TestAnOpenProducerHoldsTheCursorAndNobodysEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		outbox := &heldOutbox{OutboxStore: store}
		var applied log
		d := events.NewDispatcher(outbox, store, store, store, events.WithWindow(50, 1<<20))
		require.NoError(t, d.Subscribe("t", "h", applied.handler(nil)))
		r := poll(t, d, func(err error) { t.Error(err) })
		publish(t, store, event("before"))
		elapse(2 * time.Second)
		now := time.Now()
		outbox.since.Store(&now)
		late := now.Add(time.Microsecond).UTC()
		for i := range 40 {
			publish(t, store, of(fmt.Sprint(i), fmt.Sprint(i)))
		}
		elapse(2 * time.Second)
		require.Len(t, applied.all(), 41)
		require.Equal(t, "before", load(t, store).Cursor.ID)

		// The producer commits: its row is behind what has been read.
		rogue := persistence.Record{ID: "late", EventType: "t", AggregateType: "User", AggregateID: "late", CreatedTime: late}
		require.NoError(t, store.Insert(t.Context(), rogue))
		elapse(2 * time.Second)
		require.Contains(t, applied.all(), "late")
		require.Equal(t, "before", load(t, store).Cursor.ID)

		// The window is full before the producers are done.
		for i := range 40 {
			publish(t, store, of(fmt.Sprint(i), fmt.Sprint("more", i)))
		}
		elapse(2 * time.Second)
		require.Len(t, applied.all(), 51)
		outbox.since.Store(nil)
		elapse(2 * time.Second)
		require.Len(t, applied.all(), 82)
		require.Equal(t, "more39", load(t, store).Cursor.ID)
		require.Zero(t, d.Stats().LateEvents)
		r.stop()
		require.Positive(t, outbox.counted.Load())
		require.Zero(t, outbox.miscounted.Load())
	})
}

func TestWhatIsLateIsFoundBesideAHoldout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		outbox := &heldOutbox{OutboxStore: store}
		var applied log
		d := events.NewDispatcher(outbox, store, store, store)
		require.NoError(t, d.Subscribe("t", "h", applied.handler(nil)))
		r := poll(t, d, func(err error) { t.Error(err) })
		publish(t, store, event("before"))
		elapse(2 * time.Second)
		now := time.Now()
		outbox.since.Store(&now)
		outbox.beyond.Store(&now)
		insert := func(id string, at time.Time) {
			require.NoError(t, store.Insert(t.Context(), persistence.Record{
				ID: id, EventType: "t", AggregateType: "User", AggregateID: id, CreatedTime: at.UTC(),
			}))
		}
		for i := range 40 {
			insert(fmt.Sprint(i), now.Add(time.Duration(10+i)*time.Millisecond))
		}
		elapse(2 * time.Second)
		require.Len(t, applied.all(), 41)

		// Somebody else commits late, before the mark moves on beside the holdout.
		insert("late", now.Add(15500*time.Microsecond))
		beyond := now.Add(time.Second)
		outbox.beyond.Store(&beyond)
		elapse(2 * time.Second)
		require.Contains(t, applied.all(), "late")
		insert("new", now.Add(3*time.Second))
		elapse(2 * time.Second)
		require.Contains(t, applied.all(), "new")
		require.Positive(t, outbox.held.Load())

		// The holdout commits, and the cursor moves on.
		insert("open", now.Add(time.Microsecond))
		outbox.since.Store(nil)
		elapse(2 * time.Second)
		require.Contains(t, applied.all(), "open")
		require.Equal(t, "new", load(t, store).Cursor.ID)
		require.Zero(t, outbox.miscounted.Load())
		require.Zero(t, d.Stats().LateEvents)
		r.stop()
	})
}

func TestTheWindowIsBoundedByBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		var applied log
		var broken atomic.Bool
		broken.Store(true)
		d := newDispatcher(t, store, applied.handler(func(_ context.Context, evt events.Event) error {
			if broken.Load() {
				return errBroken
			}
			return nil
		}), events.WithWindow(1000, 10_000), events.WithMaxAttempts(100), events.WithBackoff(time.Second, time.Second))
		for i := range 30 {
			evt := of("a", fmt.Sprint(i))
			evt.Payload = make([]byte, 1000)
			publish(t, store, evt)
		}
		late := of("b", "other")
		publish(t, store, late)
		r := poll(t, d, nil)
		elapse(10 * time.Second)
		require.Empty(t, applied.all())
		broken.Store(false)
		elapse(10 * time.Second)
		require.Len(t, applied.all(), 31)
		r.stop()
	})
}
