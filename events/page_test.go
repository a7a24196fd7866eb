package events_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/memstore"
	"github.com/onward-go/outbox/persistence"
)

// errTransient is a fault that is not the event's.
var errTransient = fmt.Errorf("a lock of somebody else: %w", memstore.ErrDeadlock)

func TestAPassReadsOnPastWhatIsSettledWhileTheCursorWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		publishMany(t, store, 300, 300)
		outbox := &heldOutbox{OutboxStore: store}
		since := time.Now().Add(-time.Hour)
		outbox.since.Store(&since)
		elapse(time.Second)
		var applied log
		d := events.NewDispatcher(outbox, store, store, store)
		require.NoError(t, d.Subscribe("t", "h", applied.handler(nil)))
		for pass := 1; pass <= 3; pass++ {
			n, err := d.RunOnce(t.Context(), 100)
			require.NoError(t, err)
			require.Equal(t, 100*pass, n, "with those that were settled before")
			require.Len(t, applied.all(), 100*pass, "the limit is that of what is delivered")
		}
		require.True(t, load(t, store).Cursor.IsZero())
		outbox.since.Store(nil)
		_, err := d.RunOnce(t.Context(), 100)
		require.NoError(t, err)
		require.Equal(t, "e299", load(t, store).Cursor.ID)
		require.Len(t, applied.all(), 300)
	})
}

// Whatever fails in each pass is settled in the end, and lets others go on.
func TestAPassReadsOnPastWhatFails(t *testing.T) {
	for name, cause := range map[string]error{"an error": errBroken, "a fault": errTransient} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memstore.New()
				publish(t, store, of("bad", "bad"))
				publishMany(t, store, 300, 300)
				var applied log
				apply := applied.handler(nil)
				tries := 0
				d := newDispatcher(t, store, func(ctx context.Context, evt events.Event) error {
					if evt.ID == "bad" {
						tries++
						return cause
					}
					return apply(ctx, evt)
				}, events.WithMaxAttempts(2))
				elapse(time.Second) // no event is stamped later than a pass begins
				passes := 0
				for ; len(applied.all()) < 300; passes++ {
					require.Less(t, passes, 4)
					_, err := d.RunOnce(t.Context(), 100)
					require.True(t, passes >= 2 || err != nil)
					elapse(time.Second)
				}
				for ; load(t, store).Cursor.ID != "e299"; passes++ {
					require.Less(t, passes, 30, "a fault counts as an attempt after ten")
					_, _ = d.RunOnce(t.Context(), 100)
				}
				letters, err := store.ListDeadLetters(t.Context(), persistence.DeadLetterQuery{Limit: 10})
				require.NoError(t, err)
				require.Len(t, letters, 1)
				require.Equal(t, map[string]int{"an error": 2, "a fault": 20}[name], tries, "at most once a pass")
			})
		})
	}
}

func TestAPassHoldsNoMoreThanTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		publishMany(t, store, 3000, 30)
		var applied log
		greatest := 0
		d := newDispatcher(t, store, applied.handler(nil), events.WithWindow(200, 1<<20),
			events.WithObserver(events.Observer{Read: func(i events.ReadInfo) { greatest = max(greatest, i.Window) }}))
		n, err := d.RunOnce(t.Context(), 1_000_000)
		require.NoError(t, err)
		require.Equal(t, 3000, n)
		require.Len(t, applied.all(), 3000)
		requireOrder(t, applied.all(), 30)
		require.LessOrEqual(t, greatest, 200)
	})
}

// What one producer commits at once, behind what has been read, is delivered page
// by page, in order, and none of it is passed.
func TestManyLateEventsAreReadInPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const window, late = 50, 2000
		store := memstore.New()
		outbox := &heldOutbox{OutboxStore: store}
		var applied log
		greatest := 0
		d := events.NewDispatcher(outbox, store, store, store, events.WithWindow(window, 1<<20),
			events.WithObserver(events.Observer{Read: func(i events.ReadInfo) { greatest = max(greatest, i.Window) }}))
		require.NoError(t, d.Subscribe("t", "h", applied.handler(nil)))
		r := poll(t, d, func(err error) { t.Error(err) })
		publish(t, store, event("before"))
		elapse(2 * time.Second)
		began := time.Now().UTC()
		outbox.since.Store(&began)
		elapse(time.Second)
		publish(t, store, of("other", "read"))
		elapse(2 * time.Second)
		require.Equal(t, []string{"before", "read"}, applied.all())

		for i := range late {
			require.NoError(t, store.Insert(t.Context(), persistence.Record{
				ID: fmt.Sprintf("e%d", i), EventType: "t", AggregateType: "User", AggregateID: fmt.Sprint(i % 7),
				CreatedTime: began.Add(time.Duration(1+i) * time.Microsecond),
			}))
		}
		publish(t, store, of("other", "new"))
		elapse(10 * time.Second)
		require.LessOrEqual(t, len(applied.all()), 2*window+20, "as long as the mark is held, no more than the window takes")
		outbox.since.Store(nil)
		elapse(20 * time.Second)
		all := applied.all()
		require.Len(t, all, late+3)
		requireOrder(t, slices.DeleteFunc(slices.Clone(all), func(id string) bool { return id == "before" || id == "read" || id == "new" }), 7)
		require.LessOrEqual(t, greatest, 2*window+20)
		require.Equal(t, "new", load(t, store).Cursor.ID)
		require.Zero(t, d.Stats().LateEvents, "nothing is left to an audit")
		r.stop()
		require.Zero(t, outbox.miscounted.Load())
	})
}

func TestTheCursorMovesAsSoonAsAFullWindowHasSomethingSettled(t *testing.T) {
	for _, window := range []int{8, 50, 100} {
		synctest.Test(t, func(t *testing.T) {
			store := memstore.New()
			publishMany(t, store, 2000, 2000)
			var applied log
			d := newDispatcher(t, store, applied.handler(nil), events.WithWindow(window, 1<<20))
			began := time.Now()
			r := pollEvery(t, 10*time.Millisecond, d, func(err error) { t.Error(err) })
			for len(applied.all()) < 2000 {
				time.Sleep(time.Millisecond)
			}
			require.Less(t, time.Since(began), time.Second, "%d windows of %d", 2000/window, window)
			r.stop()
		})
	}
}

func TestAFullWindowThatCannotMoveIsNoBusyLoop(t *testing.T) {
	for name, fails := range map[string]bool{"a producer is open": false, "the first event fails": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memstore.New()
				outbox := &countingOutbox{OutboxStore: store}
				held := &heldOutbox{OutboxStore: outbox}
				since := time.Now().Add(-time.Hour)
				if !fails {
					held.since.Store(&since)
				}
				d := events.NewDispatcher(held, store, store, store, events.WithWindow(20, 1<<20),
					events.WithMaxAttempts(1000), events.WithBackoff(time.Hour, time.Hour))
				var first atomic.Bool
				require.NoError(t, d.Subscribe("t", "h", func(context.Context, events.Event) error {
					if fails && first.CompareAndSwap(false, true) {
						return errBroken
					}
					return nil
				}))
				publishMany(t, store, 100, 100)
				r := pollEvery(t, time.Minute, d, nil)
				elapse(10 * time.Second)
				marks := outbox.marks.Load()
				elapse(time.Minute)
				require.Less(t, outbox.marks.Load()-marks, int64(400))
				r.stop()
			})
		})
	}
}

// setBack is an outbox whose database's clock is behind.
type setBack struct {
	persistence.OutboxStore
	by atomic.Int64
}

func (s *setBack) ReadWindow(ctx context.Context, read persistence.WindowRead) (persistence.WindowPage, error) {
	page, err := s.OutboxStore.ReadWindow(ctx, read)
	page.Now = page.Now.Add(-time.Duration(s.by.Load()))
	return page, err
}

func (s *setBack) SafeMark(ctx context.Context) (persistence.SafeMark, error) {
	mark, err := s.OutboxStore.SafeMark(ctx)
	mark.Now = mark.Now.Add(-time.Duration(s.by.Load()))
	return mark, err
}

// The clock comes with each read, so an idle dispatcher need not wait for its audit.
func TestAnIdleDispatcherNoticesAClockThatWasSetBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		outbox := &setBack{OutboxStore: store}
		var applied log
		d := events.NewDispatcher(outbox, store, store, store)
		require.NoError(t, d.Subscribe("t", "h", applied.handler(nil)))
		r := pollEvery(t, time.Second, d, func(err error) { t.Error(err) })
		elapse(30 * time.Second)
		publish(t, store, event("a"))
		elapse(62 * time.Second) // an audit has just been
		outbox.by.Store(int64(90 * time.Second))
		require.NoError(t, store.Insert(t.Context(), persistence.Record{
			ID: "behind", EventType: "t", AggregateType: "User", AggregateID: "b", CreatedTime: time.Now().Add(-90 * time.Second).UTC(),
		}))
		elapse(5 * time.Second)
		require.Equal(t, []string{"a", "behind"}, applied.all())
		r.stop()
	})
}

// weighing is an outbox that adds up what payloads are read.
type weighing struct {
	persistence.OutboxStore
	bytes atomic.Int64
}

func (w *weighing) ReadWindow(ctx context.Context, read persistence.WindowRead) (persistence.WindowPage, error) {
	page, err := w.OutboxStore.ReadWindow(ctx, read)
	for _, r := range page.Records {
		w.bytes.Add(int64(len(r.Payload)))
	}
	return page, err
}

func TestAnAuditReadsThePayloadsOfWhatItDeliversAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size = 1000
		store := memstore.New()
		outbox := &weighing{OutboxStore: store}
		got := map[string]string{}
		d := events.NewDispatcher(outbox, store, store, store, events.WithConcurrency(1))
		require.NoError(t, d.Subscribe("t", "h", func(_ context.Context, evt events.Event) error {
			got[evt.ID] = string(evt.Payload)
			return nil
		}))
		r := poll(t, d, func(err error) { t.Error(err) })
		for i := range 1200 {
			evt := of("a", fmt.Sprint(i))
			evt.Payload = make([]byte, size)
			publish(t, store, evt)
		}
		began := time.Now().UTC()
		elapse(30 * time.Second)
		require.Len(t, got, 1200)
		before := outbox.bytes.Load()
		for i, id := range []string{"first", "second"} {
			require.NoError(t, store.Insert(t.Context(), persistence.Record{
				ID: id, EventType: "t", AggregateType: "User", AggregateID: id, Payload: []byte("payload of " + id),
				CreatedTime: began.Add(time.Duration(300*(i+1))*time.Microsecond + 500*time.Nanosecond).Truncate(time.Microsecond),
			}))
		}
		elapse(2 * time.Minute)
		require.Equal(t, "payload of first", got["first"])
		require.Equal(t, "payload of second", got["second"])
		require.Equal(t, int64(len("payload of first")+len("payload of second")), outbox.bytes.Load()-before)
		r.stop()
	})
}
