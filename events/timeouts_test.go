package events_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/memstore"
)

// Handlers share timers, and each has all of its time.
func TestEveryHandlerHasAllOfItsTime(t *testing.T) {
	const timeout, late = 64 * time.Second, time.Second
	for _, concurrency := range []int{1, 4} {
		synctest.Test(t, func(t *testing.T) {
			store := memstore.New()
			var applied log
			apply := applied.handler(nil)
			var hung atomic.Bool
			d := newDispatcher(t, store, func(ctx context.Context, evt events.Event) error {
				began := time.Now()
				deadline, ok := ctx.Deadline()
				assert.True(t, ok)
				assert.GreaterOrEqual(t, deadline.Sub(began), timeout)
				assert.LessOrEqual(t, deadline.Sub(began), timeout+late)
				if evt.ID != "e100" || hung.Swap(true) {
					time.Sleep(300 * time.Millisecond) // another timer every few events
					return apply(ctx, evt)
				}
				<-ctx.Done()
				assert.ErrorIs(t, ctx.Err(), context.DeadlineExceeded)
				assert.ErrorContains(t, context.Cause(ctx), "timed out")
				assert.Equal(t, deadline.Sub(began), time.Since(began))
				return ctx.Err()
			}, events.WithConcurrency(concurrency), events.WithHandlerTimeout(timeout))
			publishMany(t, store, 200, 200)
			r := poll(t, d, func(err error) { require.ErrorContains(t, err, "timed out after 1m4s") })
			elapse(10 * time.Minute)
			r.stop()
			require.Len(t, applied.all(), 200)
		})
	}
}

// A handler's context ends with it, although its timer goes on.
func TestAHandlersContextEndsWithIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		var contexts []context.Context
		d := newDispatcher(t, store, func(ctx context.Context, _ events.Event) error {
			for _, ended := range contexts {
				assert.ErrorIs(t, ended.Err(), context.Canceled)
			}
			contexts = append(contexts, ctx)
			return nil
		}, events.WithConcurrency(1))
		publishMany(t, store, 3, 1)
		r := poll(t, d, nil)
		elapse(time.Second)
		r.stop()
		require.Len(t, contexts, 3)
	})
}
