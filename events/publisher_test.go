package events_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/memstore"
	"github.com/onward-go/outbox/persistence"
)

// With transactions of two databases in the context, a publisher tells of the commit
// of its own store's, and of no other.
func TestAPublisherTellsOfTheCommitOfItsOwnDatabase(t *testing.T) {
	errRefused := errors.New("refused")
	own, other := memstore.New(), memstore.New()
	var seen []int // how many events were visible at each notification
	visible := func() int {
		records, err := own.ReadAfter(t.Context(), persistence.Cursor{}, 100)
		require.NoError(t, err)
		return len(records)
	}
	publisher := events.NewPublisher(own, events.WithNotify(func() { seen = append(seen, visible()) }))
	publish := func(ctx context.Context) error {
		return publisher.Publish(ctx, events.Event{Type: "t", AggregateType: "x", AggregateID: "1"})
	}

	t.Log("the inner database commits, then the own")
	require.NoError(t, own.Atomically(t.Context(), func(ctx context.Context) error {
		require.NoError(t, other.Atomically(ctx, publish))
		require.Empty(t, seen)
		return nil
	}))
	require.Equal(t, []int{1}, seen)

	t.Log("the inner database rolls back, the own commits")
	require.NoError(t, own.Atomically(t.Context(), func(ctx context.Context) error {
		require.ErrorIs(t, other.Atomically(ctx, func(ctx context.Context) error { return errors.Join(publish(ctx), errRefused) }), errRefused)
		return nil
	}))
	require.Equal(t, []int{1, 2}, seen)

	t.Log("the own database rolls back")
	require.ErrorIs(t, own.Atomically(t.Context(), func(ctx context.Context) error {
		return errors.Join(other.Atomically(ctx, publish), errRefused)
	}), errRefused)
	require.Equal(t, []int{1, 2}, seen)

	t.Log("the context is that of the other database's transaction, which has ended")
	require.NoError(t, own.Atomically(t.Context(), func(ctx context.Context) error {
		var kept context.Context
		require.NoError(t, other.Atomically(ctx, func(ctx context.Context) error { kept = ctx; return nil }))
		return publish(kept)
	}))
	require.Equal(t, []int{1, 2, 3}, seen)

	t.Log("a store that does not tell of its commits")
	publisher = events.NewPublisher(struct{ persistence.OutboxStore }{own}, events.WithNotify(func() { seen = append(seen, visible()) }))
	require.NoError(t, own.Atomically(t.Context(), publish))
	require.Equal(t, []int{1, 2, 3, 4}, seen)
	require.NoError(t, own.Atomically(t.Context(), func(ctx context.Context) error {
		var kept context.Context
		require.NoError(t, other.Atomically(ctx, func(ctx context.Context) error { kept = ctx; return nil }))
		return publish(kept) // it is written, so it is no error, and polling finds it
	}))
	require.Equal(t, 5, visible())
}
