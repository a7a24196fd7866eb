package events_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/memstore"
	"github.com/onward-go/outbox/persistence"
)

func keyed(id, key string) events.Event {
	e := event(id)
	e.DedupKey = key
	return e
}

func committed(t *testing.T, store persistence.OutboxStore) (ids []string) {
	t.Helper()
	records, err := store.ReadAfter(t.Context(), persistence.Cursor{}, 100)
	require.NoError(t, err)
	for _, r := range records {
		ids = append(ids, r.ID)
	}
	return ids
}

// watched counts the calls of a store.
type watched struct {
	*memstore.Store
	reserved, appended int
}

func (w *watched) ReserveKeys(ctx context.Context, reservations ...persistence.Reservation) error {
	w.reserved++
	return w.Store.ReserveKeys(ctx, reservations...)
}

func (w *watched) Append(ctx context.Context, records ...persistence.Record) error {
	w.appended++
	return w.Store.Append(ctx, records...)
}

func TestKeysAreReservedBeforeTheEventsAndOnlyIfThereAreAny(t *testing.T) {
	store := &watched{Store: memstore.New()}
	publisher := events.NewPublisher(store)
	require.NoError(t, store.Atomically(t.Context(), func(ctx context.Context) error {
		require.NoError(t, publisher.Publish(ctx, event("a"), event("b")))
		require.Equal(t, []int{0, 1}, []int{store.reserved, store.appended})
		require.NoError(t, publisher.Publish(ctx, event("c"), keyed("d", "k"), keyed("e", "l")))
		require.Equal(t, []int{1, 2}, []int{store.reserved, store.appended})
		require.ErrorIs(t, publisher.Publish(ctx, event("f"), keyed("g", "k")), persistence.ErrDuplicate)
		require.Equal(t, []int{2, 2}, []int{store.reserved, store.appended})
		return nil
	}))
	require.Equal(t, []string{"a", "b", "c", "d", "e"}, committed(t, store))
}

func TestAKeyIsRefusedWhereTheStoreKeepsNone(t *testing.T) {
	store := memstore.New()
	publisher := events.NewPublisher(struct{ persistence.OutboxStore }{store})
	require.NoError(t, store.Atomically(t.Context(), func(ctx context.Context) error {
		err := publisher.Publish(ctx, event("a"), keyed("b", "k"))
		require.ErrorIs(t, err, persistence.ErrInvalid)
		require.ErrorContains(t, err, "dedup key")
		return publisher.Publish(ctx, event("c"))
	}))
	require.Equal(t, []string{"c"}, committed(t, store))
}

func TestAKeyIsOfTheAccountThatComesFromTheContext(t *testing.T) {
	store := memstore.New()
	publisher := events.NewPublisher(store)
	command := func(account, id string) error {
		return store.Atomically(events.WithAccountID(t.Context(), account), func(ctx context.Context) error {
			return publisher.Publish(ctx, keyed(id, "k"))
		})
	}
	require.NoError(t, command("one", "a"))
	require.NoError(t, command("two", "b"))
	err := command("one", "c")
	require.ErrorIs(t, err, persistence.ErrDuplicate)
	for _, named := range []string{"event c", `"k"`, `"one"`, "published before"} {
		require.ErrorContains(t, err, named)
	}
	require.Equal(t, []string{"a", "b"}, committed(t, store))
}

// A command whose caller has lost the answer is run again. Its event takes
// effect once, though each run makes an event with an id of its own.
func TestARetriedCommandTakesEffectOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		notified := 0
		publisher := events.NewPublisher(store, events.WithNotify(func() { notified++ }))
		command := func() error {
			return store.Atomically(t.Context(), func(ctx context.Context) error {
				err := publisher.Publish(ctx, keyed("", "request-1"))
				if errors.Is(err, persistence.ErrDuplicate) {
					return nil // it has been done
				}
				return err
			})
		}
		for range 3 {
			require.NoError(t, command())
		}
		effects := 0
		d := events.NewDispatcher(store, store, store, store)
		require.NoError(t, d.Subscribe("t", "h", func(_ context.Context, e events.Event) error {
			require.Empty(t, e.DedupKey)
			effects++
			return nil
		}))
		_, err := d.RunOnce(t.Context(), 10)
		require.NoError(t, err)
		require.Equal(t, 1, effects)
		require.Equal(t, 1, notified)

		// A month later the key is forgotten, and it is another command.
		time.Sleep(persistence.DefaultKeepKeys)
		report, err := persistence.Retain(t.Context(), store, 365*24*time.Hour, persistence.RetentionOptions{})
		require.NoError(t, err)
		require.Zero(t, report.PurgedKeys)
		time.Sleep(time.Second)
		report, err = persistence.Retain(t.Context(), store, 365*24*time.Hour, persistence.RetentionOptions{})
		require.NoError(t, err)
		require.Equal(t, 1, report.PurgedKeys)
		require.NoError(t, command())
		_, err = d.RunOnce(t.Context(), 10)
		require.NoError(t, err)
		require.Equal(t, 2, effects)
	})
}
