package events_test

import (
	"context"
	"errors"
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

// cutCursors is the sidecar of a process that may be cut off from it, or end.
type cutCursors struct {
	persistence.OutboxCursorStore
	cut atomic.Bool
}

var errCut = errors.New("connection refused")

func (c *cutCursors) Acquire(ctx context.Context, dispatcher, owner string, duration time.Duration) (persistence.Lease, error) {
	if c.cut.Load() {
		return persistence.Lease{}, errCut
	}
	return c.OutboxCursorStore.Acquire(ctx, dispatcher, owner, duration)
}

func (c *cutCursors) Save(ctx context.Context, lease persistence.Lease, progress persistence.Progress) error {
	if c.cut.Load() {
		return errCut
	}
	return c.OutboxCursorStore.Save(ctx, lease, progress)
}

func (c *cutCursors) RecordFailure(ctx context.Context, lease persistence.Lease, failure persistence.Failure) (persistence.Attempt, error) {
	if c.cut.Load() {
		return persistence.Attempt{}, errCut
	}
	return c.OutboxCursorStore.RecordFailure(ctx, lease, failure)
}

func (c *cutCursors) MoveDeadLetter(ctx context.Context, move persistence.DeadLetterMove) error {
	if c.cut.Load() {
		return errCut
	}
	return c.OutboxCursorStore.MoveDeadLetter(ctx, move)
}

func (c *cutCursors) Release(ctx context.Context, lease persistence.Lease) error {
	if c.cut.Load() {
		return errCut
	}
	return c.OutboxCursorStore.Release(ctx, lease)
}

func TestOneOfManyReplicasWorksAndAStandbyTakesOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		var applied log
		var replicas []*replica
		for range 3 {
			d := newDispatcher(t, store, applied.handler(nil))
			replicas = append(replicas, poll(t, d, func(err error) { t.Error(err) }))
		}
		var want []string
		publishAndWait := func(id string) {
			publish(t, store, of("a", id))
			want = append(want, id)
			time.Sleep(2 * time.Second)
			require.Equal(t, want, applied.all())
		}
		for i, r := range replicas {
			publishAndWait(fmt.Sprint("before-", i))
			time.Sleep(time.Minute) // longer than the lease: it is renewed
			owner := load(t, store).Lease.Owner
			require.NotEmpty(t, owner)
			publishAndWait(fmt.Sprint("still-", i))
			require.Equal(t, owner, load(t, store).Lease.Owner)
			r.stop() // whoever it is
		}
		require.Empty(t, load(t, store).Lease.Owner, "the last one has released it")
	})
}

func TestAHolderThatCannotRenewStopsAndAStandbyGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		cursors := &cutCursors{OutboxCursorStore: store}
		var applied, told log
		cutOff := events.NewDispatcher(store, cursors, store, store)
		stopped := make(chan error, 1)
		require.NoError(t, cutOff.Subscribe("t", "h", func(ctx context.Context, evt events.Event) error {
			<-ctx.Done() // it would go on for ever
			stopped <- context.Cause(ctx)
			return ctx.Err()
		}))
		var problems []error
		first := poll(t, cutOff, func(err error) { problems = append(problems, err) })
		synctest.Wait()
		second := poll(t, newDispatcher(t, store, applied.handler(nil)), func(err error) { told.add(err.Error()) })
		publish(t, store, event("a"))
		elapse(2 * time.Second)
		cursors.cut.Store(true)
		elapse(events.DefaultLease + 7*time.Second)
		require.ErrorIs(t, <-stopped, persistence.ErrLeaseLost, "its handler is cancelled")
		require.Equal(t, []string{"a"}, applied.all())
		require.True(t, load(t, store).Lease.Unclean)
		require.Empty(t, told.all())
		first.stop()
		second.stop()
		require.ErrorIs(t, errors.Join(problems...), persistence.ErrLeaseLost)
	})
}

func TestARewoundCursorEndsTheTermAndIsReadAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		var applied log
		var problems []error
		publish(t, store, event("a"), event("b"))
		r := poll(t, newDispatcher(t, store, applied.handler(nil)), func(err error) { problems = append(problems, err) })
		elapse(time.Second)
		require.Equal(t, "b", load(t, store).Cursor.ID)
		require.NoError(t, store.Rewind(t.Context(), events.DefaultName, persistence.Cursor{}))
		elapse(10 * time.Second)
		require.Equal(t, "b", load(t, store).Cursor.ID)
		require.Equal(t, []string{"a", "b"}, applied.all(), "once")
		require.ErrorIs(t, errors.Join(problems...), persistence.ErrLeaseLost)
		r.stop()
	})
}

func TestRunOnceWhilePollIsAtWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		d := newDispatcher(t, store, nothing)
		r := poll(t, d, nil)
		synctest.Wait()
		n, err := d.RunOnce(t.Context(), 1)
		require.ErrorIs(t, err, persistence.ErrLeaseHeld)
		require.Zero(t, n)
		require.ErrorIs(t, d.Subscribe("t", "late", nothing), persistence.ErrInvalid)
		r.stop()
		_, err = d.RunOnce(t.Context(), 1)
		require.NoError(t, err)
	})
}

func TestAnotherDispatchersHandlerIsRefused(t *testing.T) {
	store := memstore.New()
	_, err := newDispatcher(t, store, nothing).RunOnce(t.Context(), 1)
	require.NoError(t, err)
	_, err = newDispatcher(t, store, nothing, events.WithName("other")).RunOnce(t.Context(), 1)
	require.ErrorIs(t, err, persistence.ErrInvalid)
	require.ErrorContains(t, err, `"h"`)
}

func TestAHandlerThatNobodyHasIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		d := newDispatcher(t, store, nothing)
		require.NoError(t, d.Subscribe("t", "removed", nothing))
		_, err := d.RunOnce(t.Context(), 1)
		require.NoError(t, err)
		r := pollEvery(t, time.Minute, newDispatcher(t, store, nothing, events.WithLease(time.Hour)), nil)
		elapse(events.DefaultSubscriptionExpiry - time.Hour)
		states, err := store.ListSubscriptions(t.Context())
		require.NoError(t, err)
		require.Len(t, states, 2)
		elapse(3 * time.Hour)
		states, err = store.ListSubscriptions(t.Context())
		require.NoError(t, err)
		require.Len(t, states, 1)
		require.Equal(t, "h", states[0].Handler)
		r.stop()
	})
}
