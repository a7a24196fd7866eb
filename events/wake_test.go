package events_test

import (
	"context"
	"reflect"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/eventstest"
	"github.com/onward-go/outbox/memstore"
	"github.com/onward-go/outbox/persistence"
)

// countingOutbox counts what a dispatcher asks of the database.
type countingOutbox struct {
	persistence.OutboxStore
	reads, marks atomic.Int64
}

func (c *countingOutbox) ReadWindow(ctx context.Context, read persistence.WindowRead) (persistence.WindowPage, error) {
	c.reads.Add(1)
	return c.OutboxStore.ReadWindow(ctx, read)
}

func (c *countingOutbox) SafeMark(ctx context.Context) (persistence.SafeMark, error) {
	c.marks.Add(1)
	return c.OutboxStore.SafeMark(ctx)
}

func TestACommitWakesTheDispatcherOfTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		var applied log
		d := newDispatcher(t, store, applied.handler(nil))
		r := pollEvery(t, time.Hour, d, func(err error) { t.Error(err) })
		publisher := events.NewPublisher(store, events.WithNotify(d.Wake))
		elapse(5 * time.Hour)
		require.NoError(t, store.Atomically(t.Context(), func(ctx context.Context) error {
			require.NoError(t, publisher.Publish(ctx, event("a")))
			synctest.Wait()
			require.Empty(t, applied.all(), "not before the commit")
			return nil
		}))
		start := time.Now()
		synctest.Wait()
		require.Equal(t, []string{"a"}, applied.all())
		require.Zero(t, time.Since(start), "without a wait")

		require.ErrorIs(t, store.Atomically(t.Context(), func(ctx context.Context) error {
			require.NoError(t, publisher.Publish(ctx, event("b")))
			return errBroken
		}), errBroken)
		d.Wake()
		d.Wake()
		synctest.Wait()
		require.Equal(t, []string{"a"}, applied.all())
		r.stop()
	})
}

func TestAnIdleDispatcherAsksOneThingAnInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		outbox := &countingOutbox{OutboxStore: store}
		d := events.NewDispatcher(outbox, store, store, store)
		require.NoError(t, d.Subscribe("t", "h", nothing))
		publish(t, store, event("a"))
		r := pollEvery(t, time.Second, d, nil)
		elapse(time.Minute)
		reads, marks := outbox.reads.Load(), outbox.marks.Load()
		elapse(10 * time.Minute)
		require.Less(t, outbox.reads.Load()-reads, int64(670))
		require.Greater(t, outbox.reads.Load()-reads, int64(599))
		require.LessOrEqual(t, outbox.marks.Load()-marks, int64(11), "the mark is the audit's, once a minute")
		r.stop()
	})
}

// Whatever a dispatcher does beside its reads, a database that sleeps while nobody asks
// can sleep for an interval.
func TestAnIdleDispatcherSendsNothingWithinItsInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		var faults eventstest.Faults
		calls := func() (n int) {
			for _, contract := range []reflect.Type{
				reflect.TypeFor[persistence.Transactor](), reflect.TypeFor[persistence.OutboxStore](),
				reflect.TypeFor[persistence.OutboxCursorStore](), reflect.TypeFor[persistence.IdempotencyStore](),
			} {
				for method := range contract.Methods() {
					n += faults.Calls(method.Name)
				}
			}
			return n
		}
		d := events.NewDispatcher(faults.Outbox(store), faults.Cursors(store), faults.Transactor(store), faults.Idempotency(store),
			events.WithLease(3*time.Hour))
		require.NoError(t, d.Subscribe("t", "h", nothing))
		publish(t, store, event("a"))
		r := pollEvery(t, time.Hour, d, func(err error) { t.Error(err) })
		elapse(24 * time.Hour)
		before, asked := calls(), 0
		for range 24 * 60 {
			elapse(time.Minute)
			if now := calls(); now > before {
				before = now
				asked++
			}
		}
		require.GreaterOrEqual(t, asked, 24, "it reads once an interval")
		require.LessOrEqual(t, asked, 5*24, "one minute for each of what it does once an interval")
		r.stop()
	})
}

func TestPollIsSoonerThanItsIntervalWhileThereIsWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		var applied log
		r := pollEvery(t, 10*time.Second, newDispatcher(t, store, applied.handler(nil)), nil)
		elapse(time.Minute)
		publish(t, store, event("a"))
		elapse(10 * time.Second)
		publish(t, store, event("b"))
		published := time.Now()
		elapse(10 * time.Second)
		require.Equal(t, []string{"a", "b"}, applied.all())
		require.Less(t, applied.when["b"].Sub(published), 10*time.Second)
		r.stop()
	})
}

func TestABusyDispatcherReadsNoFurtherAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		outbox := &countingOutbox{OutboxStore: store}
		var applied log
		apply := applied.handler(nil)
		d := events.NewDispatcher(outbox, store, store, store, events.WithConcurrency(4))
		require.NoError(t, d.Subscribe("t", "h", func(ctx context.Context, evt events.Event) error {
			time.Sleep(time.Second)
			return apply(ctx, evt)
		}))
		publishMany(t, store, 800, 800)
		r := pollEvery(t, 10*time.Millisecond, d, func(err error) { t.Error(err) }) // reads 100 at a time
		for range 100 {
			elapse(10 * time.Millisecond)
			d.Wake()
		}
		require.LessOrEqual(t, outbox.reads.Load(), int64(10), "what waits is enough for all lanes")
		elapse(5 * time.Minute)
		require.Len(t, applied.all(), 800)
		r.stop()
	})
}

func TestTheWindowOfASingleLaneStaysSmall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		var applied log
		apply := applied.handler(nil)
		greatest := 0
		d := events.NewDispatcher(store, store, store, store, events.WithConcurrency(1),
			events.WithObserver(events.Observer{Read: func(i events.ReadInfo) { greatest = max(greatest, i.Window) }}))
		require.NoError(t, d.Subscribe("t", "h", func(ctx context.Context, evt events.Event) error {
			time.Sleep(10 * time.Millisecond)
			return apply(ctx, evt)
		}))
		publishMany(t, store, 5000, 5000)
		r := pollEvery(t, 10*time.Millisecond, d, func(err error) { t.Error(err) }) // reads 100 at a time
		elapse(time.Minute)
		require.Len(t, applied.all(), 5000)
		r.stop()
		require.Less(t, greatest, 500)
	})
}
