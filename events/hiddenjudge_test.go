package events_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/memstore"
	"github.com/onward-go/outbox/persistence"
)

// Whoever wraps a transactor by its contract alone hides that it can judge errors. What
// is not an event's fault spends no attempt all the same, or it would be a dead letter.
func TestAFaultBehindAWrappedTransactorSpendsNoAttempt(t *testing.T) {
	store := memstore.New()
	d := events.NewDispatcher(struct{ persistence.OutboxStore }{store}, struct{ persistence.OutboxCursorStore }{store},
		struct{ persistence.Transactor }{store}, struct{ persistence.IdempotencyStore }{store}, events.WithMaxAttempts(1))
	faults, applied := 3, 0
	require.NoError(t, d.Subscribe("t", "h", func(ctx context.Context, _ events.Event) error {
		if faults > 0 {
			faults--
			require.NoError(t, store.Abort(ctx, memstore.ErrDeadlock))
			return fmt.Errorf("the handler's own words: %w", memstore.ErrDeadlock)
		}
		applied++
		return nil
	}))
	require.NoError(t, store.Atomically(t.Context(), func(ctx context.Context) error {
		return events.NewPublisher(store).Publish(ctx, events.Event{Type: "t", AggregateType: "a", AggregateID: "1"})
	}))
	for faults > 0 {
		_, err := d.RunOnce(t.Context(), 10)
		require.ErrorIs(t, err, persistence.ErrTransient)
	}
	n, err := d.RunOnce(t.Context(), 10)
	require.NoError(t, err)
	require.Equal(t, []int{1, 1}, []int{n, applied})
	letters, err := store.ListDeadLetters(t.Context(), persistence.DeadLetterQuery{Limit: 10})
	require.NoError(t, err)
	require.Empty(t, letters)
}
