package events_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/memstore"
)

func TestShutdownLetsHandlersComeToAnEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		var applied log
		publish(t, store, of("a", "a1"), of("a", "a2"), of("b", "b1"), of("b", "b2"))
		r := poll(t, newDispatcher(t, store, applied.handler(func(_ context.Context, evt events.Event) error {
			if evt.ID == "b1" {
				time.Sleep(3 * time.Second)
			}
			return nil
		})), func(err error) { t.Error(err) })
		synctest.Wait()
		require.Equal(t, []string{"a1", "a2"}, applied.all())
		start := time.Now()
		r.stop()
		require.Equal(t, 3*time.Second, time.Since(start))
		require.Equal(t, []string{"a1", "a2", "b1"}, applied.all(), "no handler is started any more")
		state := load(t, store)
		require.Equal(t, "b1", state.Cursor.ID)
		require.Empty(t, state.Lease.Owner)
		require.Empty(t, state.Attempts)
	})
}

func TestShutdownCancelsHandlersAfterTheGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		publish(t, store, event("a"))
		var cause error
		r := poll(t, newDispatcher(t, store, func(ctx context.Context, _ events.Event) error {
			<-ctx.Done()
			cause = ctx.Err()
			return cause
		}, events.WithShutdownGrace(5*time.Second)), func(err error) { t.Error(err) })
		synctest.Wait()
		start := time.Now()
		r.stop()
		require.Equal(t, 5*time.Second, time.Since(start))
		require.ErrorIs(t, cause, context.Canceled)
		state := load(t, store)
		require.True(t, state.Cursor.IsZero())
		require.Empty(t, state.Lease.Owner)
		require.Empty(t, state.Attempts, "a cancelled dispatcher spends no attempt")
	})
}
