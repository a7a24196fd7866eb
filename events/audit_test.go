package events_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/memstore"
	"github.com/onward-go/outbox/persistence"
)

// rogue returns a row that somebody stamps by himself.
func rogue(id string, at time.Time) persistence.Record {
	return persistence.Record{ID: id, EventType: "t", AggregateType: "User", AggregateID: id, CreatedTime: at.UTC().Truncate(time.Microsecond)}
}

func TestTheAuditFindsWhatIsStampedBehindTheCursor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		var applied log
		d := newDispatcher(t, store, applied.handler(nil))
		r := poll(t, d, func(err error) { t.Error(err) })
		for i := range 100 {
			publish(t, store, of(fmt.Sprint(i%7), fmt.Sprint(i)))
			time.Sleep(time.Second)
		}
		for i, ago := range []time.Duration{20 * time.Second, 21 * time.Second, 61 * time.Second, 3 * time.Minute} {
			require.NoError(t, store.Insert(t.Context(), rogue(fmt.Sprint("rogue", i), time.Now().Add(-ago))))
		}
		elapse(2 * time.Minute)
		require.Len(t, applied.all(), 104, "each once")
		require.EqualValues(t, 4, d.Stats().LateEvents)
		require.NoError(t, store.Insert(t.Context(), rogue("again", time.Now().Add(-2*time.Minute-20*time.Second))))
		elapse(2 * time.Minute)
		require.EqualValues(t, 5, d.Stats().LateEvents, "what was found is counted")
		require.Len(t, applied.all(), 105)
		r.stop()

		// A new process looks through the whole day.
		require.NoError(t, store.Insert(t.Context(), rogue("old", time.Now().Add(-3*time.Hour))))
		d = newDispatcher(t, store, applied.handler(nil))
		r = poll(t, d, func(err error) { t.Error(err) })
		elapse(10 * time.Second)
		require.EqualValues(t, 1, d.Stats().LateEvents)
		require.Len(t, applied.all(), 106)
		r.stop()
	})
}

func TestAFailingLateEventIsCountedWhenItIsSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		publish(t, store, event("a"))
		var tried log
		start := func() *replica {
			return poll(t, newDispatcher(t, store, func(_ context.Context, evt events.Event) error {
				if evt.ID == "a" {
					return nil
				}
				tried.add(evt.ID)
				return errBroken
			}, events.WithMaxAttempts(3)), nil)
		}
		r := start()
		elapse(time.Second)
		require.NoError(t, store.Insert(t.Context(), rogue("rogue", time.Now().Add(-time.Minute))))
		elapse(time.Minute)
		require.Len(t, tried.all(), 1)
		r.stop()
		r = start() // it is not lost with the process
		elapse(time.Minute)
		require.Len(t, tried.all(), 3)
		r.stop()
		letters, err := store.ListDeadLetters(t.Context(), persistence.DeadLetterQuery{Limit: 10})
		require.NoError(t, err)
		require.Len(t, letters, 1)
		require.Equal(t, 3, letters[0].Attempts)
		require.Empty(t, load(t, store).Attempts)
		d := newDispatcher(t, store, nothing)
		r = poll(t, d, nil)
		elapse(time.Minute)
		require.Zero(t, d.Stats().LateEvents)
		r.stop()
	})
}

// setBackOutbox is an outbox whose database has a clock of its own.
type setBackOutbox struct {
	persistence.OutboxStore
	back atomic.Int64 // how far it is behind
}

func (o *setBackOutbox) now() time.Time { return time.Now().Add(-time.Duration(o.back.Load())) }

func (o *setBackOutbox) SafeMark(ctx context.Context) (persistence.SafeMark, error) {
	mark, err := o.OutboxStore.SafeMark(ctx)
	mark.Now = o.now()
	return mark, err
}

func TestNothingIsLostWhenTheClockIsSetBack(t *testing.T) {
	for name, steps := range map[string][]time.Duration{
		"by an hour":                {0, time.Hour},
		"by seconds, over and over": {0, 5 * time.Second, 10 * time.Second, 7 * time.Second, 14 * time.Second, 0, 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memstore.New()
				outbox := &setBackOutbox{OutboxStore: store}
				var applied log
				d := events.NewDispatcher(outbox, store, store, store)
				require.NoError(t, d.Subscribe("t", "h", applied.handler(nil)))
				r := poll(t, d, func(err error) { t.Error(err) })
				n := 0
				for _, back := range steps {
					outbox.back.Store(int64(back))
					for range 30 {
						require.NoError(t, store.Insert(t.Context(), rogue(fmt.Sprint(n), outbox.now())))
						n++
						time.Sleep(500 * time.Millisecond)
					}
				}
				elapse(2 * time.Minute)
				require.Len(t, applied.all(), n)
				require.Positive(t, d.Stats().LateEvents)
				r.stop()
			})
		})
	}
}
