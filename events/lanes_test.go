package events_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/memstore"
)

func TestAPoisonedAggregateDelaysNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		var applied log
		d := newDispatcher(t, store, applied.handler(func(_ context.Context, evt events.Event) error {
			if evt.ID == "poison" {
				return errBroken
			}
			return nil
		}), events.WithMaxAttempts(3))
		publish(t, store, of("sick", "poison"), of("sick", "behind-the-poison"))
		for i := range 999 {
			publish(t, store, of(fmt.Sprint(i), fmt.Sprintf("e%d", i)))
		}
		start := time.Now()
		r := poll(t, d, func(error) {})
		elapse(time.Second) // the first back-off is at least that
		require.Len(t, applied.all(), 999)
		require.NotContains(t, applied.all(), "behind-the-poison")
		require.True(t, load(t, store).Cursor.IsZero(), "the cursor waits for the poison")
		elapse(time.Minute)
		require.Contains(t, applied.all(), "behind-the-poison")
		waited := applied.when["behind-the-poison"].Sub(start)
		require.GreaterOrEqual(t, waited, 3*time.Second, "two back-offs of 2 and 4 seconds, half of each random")
		require.LessOrEqual(t, waited, 7*time.Second)
		r.stop()
		require.Equal(t, "e998", load(t, store).Cursor.ID)
		require.Empty(t, load(t, store).Attempts)
	})
}

func TestAnAggregateIsDeliveredInOrderWhileOthersRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		var applied log
		running, most := 0, 0
		d := newDispatcher(t, store, applied.handler(func(context.Context, events.Event) error {
			applied.mu.Lock()
			running++
			most = max(most, running)
			applied.mu.Unlock()
			time.Sleep(time.Second)
			applied.mu.Lock()
			running--
			applied.mu.Unlock()
			return nil
		}), events.WithConcurrency(3))
		for i := range 4 {
			for _, aggregate := range []string{"a", "b", "c", "d", "e"} {
				publish(t, store, of(aggregate, fmt.Sprint(aggregate, i)))
			}
		}
		r := poll(t, d, func(err error) { t.Error(err) })
		elapse(20*time.Second/3 + time.Second)
		r.stop()
		require.Equal(t, 3, most)
		last := map[byte]byte{}
		for _, id := range applied.all() {
			require.Greater(t, id[1], last[id[0]], "order of aggregate %c", id[0])
			last[id[0]] = id[1]
		}
		require.Len(t, applied.all(), 20)
	})
}

func TestAConcurrencyOfOneKeepsTheOrderOfReadingAndStopsAtAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		var applied log
		var broken atomic.Bool
		broken.Store(true)
		d := newDispatcher(t, store, applied.handler(func(_ context.Context, evt events.Event) error {
			if broken.Load() && evt.ID == "1" {
				return errBroken
			}
			return nil
		}), events.WithConcurrency(1))
		for i := range 5 {
			publish(t, store, of(fmt.Sprint("aggregate", i%3), fmt.Sprint(i)))
		}
		r := poll(t, d, nil)
		synctest.Wait()
		require.Equal(t, []string{"0"}, applied.all())
		broken.Store(false)
		elapse(3 * time.Second)
		require.Equal(t, []string{"0", "1", "2", "3", "4"}, applied.all())
		r.stop()
	})
}

// narrow is a database on which one transaction can be open at a time.
type narrow struct{ *memstore.Store }

func (narrow) MaxTransactions() int { return 1 }

func TestADatabaseWithASingleWriterHasOneLaneAndStillNobodyWaitsForAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		var applied log
		running := 0
		d := events.NewDispatcher(store, store, narrow{store}, store)
		require.NoError(t, d.Subscribe("t", "h", applied.handler(func(_ context.Context, evt events.Event) error {
			running++
			require.Equal(t, 1, running)
			time.Sleep(time.Millisecond)
			running--
			if evt.ID == "poison" {
				return errBroken
			}
			return nil
		})))
		publish(t, store, of("sick", "poison"), of("a", "a1"), of("b", "b1"), of("a", "a2"))
		r := poll(t, d, nil)
		elapse(500 * time.Millisecond)
		require.ElementsMatch(t, []string{"a1", "a2", "b1"}, applied.all())
		r.stop()
	})
}

func TestABusyHandlerLetsTheNextBatchBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		var applied log
		d := newDispatcher(t, store, applied.handler(func(ctx context.Context, evt events.Event) error {
			if evt.ID == "slow" {
				time.Sleep(30 * time.Second)
			}
			return nil
		}))
		publish(t, store, of("slow", "slow"))
		for i := range 1000 {
			publish(t, store, of(fmt.Sprint(i%50), fmt.Sprint(i)))
		}
		r := poll(t, d, func(err error) { t.Error(err) })
		elapse(time.Second)
		require.Len(t, applied.all(), 1000)
		elapse(time.Minute)
		require.Len(t, applied.all(), 1001)
		r.stop()
		require.Equal(t, "999", load(t, store).Cursor.ID)
	})
}
