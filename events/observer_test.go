package events_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/memstore"
	"github.com/onward-go/outbox/persistence"
)

// seen remembers what an observer was told.
type seen struct {
	mu         sync.Mutex
	deliveries map[string][]events.DeliveryInfo
	reads      []events.ReadInfo
	saves      []events.SaveInfo
	leases     []events.LeaseInfo
	late       []events.LateInfo
}

func (s *seen) delivery(kind string) func(events.DeliveryInfo) {
	return func(info events.DeliveryInfo) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.deliveries == nil {
			s.deliveries = map[string][]events.DeliveryInfo{}
		}
		s.deliveries[kind] = append(s.deliveries[kind], info)
	}
}

func keep[I any](s *seen, list *[]I) func(I) {
	return func(info I) {
		s.mu.Lock()
		defer s.mu.Unlock()
		*list = append(*list, info)
	}
}

func (s *seen) observer() events.Observer {
	return events.Observer{
		Delivered: s.delivery("delivered"), Failed: s.delivery("failed"), Postponed: s.delivery("postponed"),
		DeadLettered: s.delivery("dead"), Replayed: s.delivery("replayed"), ReplayFailed: s.delivery("replay failed"),
		Read: keep(s, &s.reads), Saved: keep(s, &s.saves), Lease: keep(s, &s.leases), LateEvents: keep(s, &s.late),
	}
}

// told returns the ids of the events of a kind.
func (s *seen) told(kind string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	ids := []string{}
	for _, info := range s.deliveries[kind] {
		ids = append(ids, info.EventID)
	}
	return ids
}

func TestAnObserverIsToldOfDeliveriesAndFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		var s seen
		var mended atomic.Bool
		d := newDispatcher(t, store, func(_ context.Context, evt events.Event) error {
			time.Sleep(time.Second)
			switch {
			case evt.ID == "poison":
				return errBroken
			case evt.ID == "permanent":
				return events.Permanent(errBroken)
			case evt.ID == "fault" && !mended.Swap(true):
				return memstore.ErrDeadlock
			}
			return nil
		}, events.WithMaxAttempts(2), events.WithBackoff(2*time.Second, 2*time.Second), events.WithObserver(s.observer()))
		r := poll(t, d, nil)
		publish(t, store, of("1", "good"), of("2", "poison"), of("3", "permanent"), of("4", "fault"))
		elapse(time.Minute)
		require.ElementsMatch(t, []string{"good", "fault"}, s.told("delivered"))
		require.ElementsMatch(t, []string{"poison", "poison", "permanent"}, s.told("failed"))
		require.Equal(t, []string{"fault"}, s.told("postponed"))
		require.ElementsMatch(t, []string{"poison", "permanent"}, s.told("dead"))
		good := s.deliveries["delivered"][0]
		require.InDelta(t, 1, good.Lag.Seconds(), 2)
		good.Lag = 0
		require.Equal(t, events.DeliveryInfo{
			Dispatcher: "default", Handler: "h", EventID: "good", EventType: "t", AggregateType: "User", AggregateID: "1",
			Duration: time.Second, Batch: 1,
		}, good)
		failed := s.deliveries["failed"]
		require.ErrorIs(t, failed[len(failed)-1].Err, errBroken)
		require.Equal(t, 2, failed[len(failed)-1].Attempts)
		require.ErrorIs(t, s.deliveries["postponed"][0].Err, memstore.ErrDeadlock)

		read, late := 0, 0
		for _, info := range s.reads {
			read, late = read+info.Events, late+info.Late
		}
		require.Equal(t, []int{4, 0}, []int{read, late})
		last := s.saves[len(s.saves)-1]
		require.EqualValues(t, 4, last.Passed)
		require.Equal(t, load(t, store).Cursor, last.Cursor)
		r.stop()
		require.Len(t, s.leases, 2)
		require.Equal(t, events.LeaseAcquired, s.leases[0].Change)
		require.Equal(t, events.LeaseReleased, s.leases[1].Change)
		require.Equal(t, s.leases[0].Token, s.leases[1].Token)
	})
}

func TestAnObserverIsToldOfBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		var s seen
		d := events.NewDispatcher(store, store, store, store, events.WithObserver(s.observer()))
		require.NoError(t, d.SubscribeBatch("t", "h", func(context.Context, []events.Event) error { time.Sleep(time.Second); return nil }))
		publish(t, store, event("a"), event("b"), event("c"))
		n, err := d.RunOnce(t.Context(), 10)
		require.NoError(t, err)
		require.Equal(t, 3, n)
		require.Equal(t, []string{"a", "b", "c"}, s.told("delivered"))
		for i, info := range s.deliveries["delivered"] {
			require.Equal(t, []int{3, i}, []int{info.Batch, info.Index})
			require.Equal(t, time.Second, info.Duration)
		}
		require.NoError(t, store.Rewind(t.Context(), events.DefaultName, persistence.Cursor{}))
		_, err = d.RunOnce(t.Context(), 10)
		require.NoError(t, err)
		require.Len(t, s.told("delivered"), 3, "what is applied already is not delivered")
	})
}

func TestAnObserverIsToldOfReplaysLateEventsAndLostLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		var s seen
		var mended atomic.Bool
		d := newDispatcher(t, store, func(context.Context, events.Event) error {
			if !mended.Load() {
				return errBroken
			}
			return nil
		}, events.WithObserver(s.observer()))
		letters := bury(t, store, "default", "h", "dead", "requeued")
		require.ErrorIs(t, d.Replay(t.Context(), letters[0]), errBroken)
		require.Equal(t, []string{"dead"}, s.told("replay failed"))
		mended.Store(true)
		require.NoError(t, d.Replay(t.Context(), letters[0]))
		requeue(t, store, letters[1])
		publish(t, store, event("a"))
		r := poll(t, d, nil)
		elapse(time.Minute)
		require.Equal(t, []string{"dead", "requeued"}, s.told("replayed"))
		publish(t, store, event("b"))
		elapse(time.Second)
		require.NoError(t, store.Insert(t.Context(), rogue("rogue", time.Now().Add(-30*time.Second))))
		elapse(2 * time.Minute)
		require.Len(t, s.late, 1)
		require.EqualValues(t, 1, s.late[0].Events)
		require.NoError(t, store.Rewind(t.Context(), events.DefaultName, persistence.Cursor{}))
		elapse(time.Minute)
		r.stop()
		changes := []events.LeaseChange{}
		for _, l := range s.leases {
			changes = append(changes, l.Change)
		}
		require.Equal(t, []events.LeaseChange{events.LeaseAcquired, events.LeaseLost, events.LeaseAcquired, events.LeaseReleased}, changes)
		require.ErrorIs(t, s.leases[1].Err, persistence.ErrLeaseLost)
	})
}

// An observer that panics whatever it is told breaks nothing, and the others are
// told all the same.
func TestAnObserverThatPanicsChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		var s seen
		var logged bytes.Buffer
		d := newDispatcher(t, store, func(_ context.Context, evt events.Event) error {
			if evt.ID == "poison" {
				return errBroken
			}
			return nil
		}, events.WithMaxAttempts(1), events.WithLogger(slog.New(slog.NewTextHandler(&logged, nil))),
			events.WithObserver(panickingObserver()), events.WithObserver(events.Observer{}), events.WithObserver(s.observer()))
		letters := bury(t, store, "default", "h", "dead")
		require.NoError(t, d.Replay(t.Context(), letters[0]))
		r := poll(t, d, nil)
		publish(t, store, of("1", "a"), of("2", "poison"), of("3", "b"))
		elapse(time.Minute)
		r.stop()
		require.ElementsMatch(t, []string{"a", "b"}, s.told("delivered"))
		require.Equal(t, []string{"poison"}, s.told("dead"))
		require.Equal(t, []string{"dead"}, s.told("replayed"))
		require.Contains(t, logged.String(), `msg="outbox: callback failed" dispatcher=default error="an observer panicked: observed`)
		status, err := store.ReadStatus(t.Context())
		require.NoError(t, err)
		require.Zero(t, status.Dispatchers[0].After.N)
	})
}

func panickingObserver() events.Observer {
	err := errors.New("observed")
	delivery := func(events.DeliveryInfo) { panic(err) }
	return events.Observer{
		Delivered: delivery, Failed: delivery, Postponed: delivery, DeadLettered: delivery, Replayed: delivery, ReplayFailed: delivery,
		Read: func(events.ReadInfo) { panic(err) }, Saved: func(events.SaveInfo) { panic(err) },
		Lease: func(events.LeaseInfo) { panic(err) }, LateEvents: func(events.LateInfo) { panic(err) },
	}
}
