package events_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/memstore"
	"github.com/onward-go/outbox/persistence"
)

// mortalCursors are on a server that may be started anew.
type mortalCursors struct {
	persistence.OutboxCursorStore
	mu    sync.Mutex
	life  string
	loads int
}

func (c *mortalCursors) Acquire(ctx context.Context, dispatcher, owner string, duration time.Duration) (persistence.Lease, error) {
	lease, err := c.OutboxCursorStore.Acquire(ctx, dispatcher, owner, duration)
	c.mu.Lock()
	defer c.mu.Unlock()
	lease.Incarnation = c.life
	return lease, err
}

func (c *mortalCursors) Load(ctx context.Context, dispatcher string) (persistence.State, error) {
	c.mu.Lock()
	c.loads++
	c.mu.Unlock()
	return c.OutboxCursorStore.Load(ctx, dispatcher)
}

func (c *mortalCursors) begin(life string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.life = life
}

func (c *mortalCursors) loaded() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.loads
}

// A dispatcher with nothing to save learns by its renewals that the cursor on the server
// may be behind what it remembers.
func TestARenewalInAnotherLifeOfTheServerEndsTheTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		cursors := &mortalCursors{OutboxCursorStore: store, life: "first"}
		d := events.NewDispatcher(store, cursors, store, store)
		require.NoError(t, d.Subscribe("t", "h", nothing))
		var problems []error
		r := poll(t, d, func(err error) { problems = append(problems, err) })
		elapse(10 * events.DefaultLease)
		before := cursors.loaded()
		require.Empty(t, problems)
		cursors.begin("second")
		elapse(events.DefaultLease)
		require.Greater(t, cursors.loaded(), before, "it begins anew from the cursor that is there")
		require.ErrorIs(t, errors.Join(problems...), persistence.ErrLeaseLost)
		before, problems = cursors.loaded(), nil
		elapse(10 * events.DefaultLease)
		require.Equal(t, before, cursors.loaded(), "and goes on")
		require.Empty(t, problems)
		r.stop()
	})
}
