package matrix

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/persistence"
)

// A read beside a producer that stays open looks at what may have changed, not at
// all that the producer keeps in the window.
func TestPostgresLeavesOutWhatHoldoutsHoldBack(t *testing.T) {
	_, outbox := newPostgres(t)
	publish := func(ctx context.Context, id string) error {
		return outbox.Append(ctx, persistence.Record{ID: id, EventType: "t", AggregateType: "a", AggregateID: id})
	}
	commit := func(t *testing.T, id string) {
		require.NoError(t, outbox.Atomically(t.Context(), func(ctx context.Context) error { return publish(ctx, id) }))
	}
	for name, open := range map[string]func(context.Context) error{
		"transaction": func(ctx context.Context) error { return publish(ctx, "open") },
		"savepoint": func(ctx context.Context) error {
			return outbox.Atomically(ctx, func(ctx context.Context) error { return publish(ctx, "open-later") })
		},
	} {
		t.Run(name, func(t *testing.T) {
			beginning, err := outbox.SafeMark(t.Context())
			require.NoError(t, err)
			after := persistence.Cursor{CreatedTime: beginning.Time}
			published, end := make(chan struct{}), make(chan struct{})
			done := make(chan error, 1)
			go func() {
				done <- outbox.Atomically(t.Context(), func(ctx context.Context) error {
					err := open(ctx)
					close(published)
					<-end
					return err
				})
			}()
			<-published
			for _, id := range []string{"a", "b", "c"} {
				commit(t, name+id)
			}
			var mark persistence.SafeMark
			require.Eventually(t, func() bool {
				mark, err = outbox.SafeMark(t.Context())
				require.NoError(t, err)
				return len(mark.Holdouts.Transactions) == 1
			}, time.Minute, 10*time.Millisecond)
			page, err := outbox.ReadWindow(t.Context(), persistence.WindowRead{After: after, Limit: 10})
			require.NoError(t, err)
			known := page.Records
			require.Len(t, known, 3)
			require.True(t, mark.Holdouts.Beyond.After(known[2].CreatedTime))
			require.False(t, mark.Time.After(known[0].CreatedTime))

			// Numbers that are wrong where nobody looks.
			read := persistence.WindowRead{
				After: after, Frontier: known[2].Cursor(), Counted: known[2].Cursor(), Count: 1000, CountHeld: 1000,
				Holdouts: mark.Holdouts, LateLimit: 10, Limit: 10,
			}
			got, err := outbox.ReadWindow(t.Context(), read)
			require.NoError(t, err)
			require.Empty(t, got.Records, "what cannot have changed is not looked at")
			close(end)
			require.NoError(t, <-done)
			got, err = outbox.ReadWindow(t.Context(), read)
			require.NoError(t, err)
			require.Len(t, got.Records, 4, "the holdout has ended, so all is looked at")
		})
	}
}
