package events_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/memstore"
	"github.com/onward-go/outbox/persistence"
)

func TestPollReplaysWhatIsRequeued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		var applied log
		letters := bury(t, store, events.DefaultName, "h", "a", "b", "c")
		var told []error
		r := poll(t, newDispatcher(t, store, applied.handler(func(_ context.Context, evt events.Event) error {
			if evt.ID == "b" {
				applied.add("tried b")
				return errBroken
			}
			return nil
		})), func(err error) { told = append(told, err) })
		elapse(time.Minute)
		require.Empty(t, applied.all(), "it waits for an operator")
		requeue(t, store, letters[:2]...)
		elapse(5 * time.Second)
		require.Equal(t, []string{"a", "tried b"}, applied.all())
		elapse(time.Hour)
		require.Equal(t, []string{"a", "tried b"}, applied.all())
		wantLetter(t, store, letters[0], persistence.DeadLetterReplayed, 5, "before")
		wantLetter(t, store, letters[1], persistence.DeadLetterDead, 6, "broken")
		wantLetter(t, store, letters[2], persistence.DeadLetterDead, 5, "before")
		require.Len(t, told, 1)
		require.ErrorIs(t, told[0], errBroken)
		require.ErrorContains(t, told[0], letters[1].Event.String())
		r.stop()
	})
}

// However many letters wait for handlers that are elsewhere, those whose handlers are
// here are replayed at the next look, all of them.
func TestWhatIsRequeuedForAnotherReplicaStaysAndDelaysNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		var applied log
		ids := func(prefix string, n int) (all []string) {
			for i := range n {
				all = append(all, fmt.Sprintf("%s%04d", prefix, i))
			}
			return all
		}
		elsewhere := bury(t, store, events.DefaultName, "elsewhere", ids("a", 1500)...)
		mine := bury(t, store, events.DefaultName, "h", ids("m", 350)...)
		more := bury(t, store, events.DefaultName, "h2", ids("n", 150)...)
		r := poll(t, twoHandlers(t, store, &applied), func(err error) { t.Error(err) })
		elapse(time.Minute)
		requeue(t, store, elsewhere...)
		requeue(t, store, mine...)
		requeue(t, store, more...)
		elapse(5 * time.Second)
		require.ElementsMatch(t, append(ids("m", 350), ids("n", 150)...), applied.all())
		require.Less(t, slices.Index(applied.all(), "n0000"), 200, "handlers take turns")
		r.stop()
		wantLetter(t, store, elsewhere[0], persistence.DeadLetterRequeued, 5, "before")
		d := events.NewDispatcher(store, store, store, store)
		require.NoError(t, d.Subscribe("t", "elsewhere", applied.handler(nil)))
		for range 15 {
			_, err := d.RunOnce(t.Context(), 100)
			require.NoError(t, err)
		}
		require.Len(t, applied.all(), 2000)
	})
}

func twoHandlers(t *testing.T, store *memstore.Store, applied *log) *events.Dispatcher {
	t.Helper()
	d := newDispatcher(t, store, applied.handler(nil))
	require.NoError(t, d.Subscribe("t", "h2", applied.handler(nil)))
	return d
}

// A handler that has moved to another dispatcher takes its letters along.
func TestWhoeverHasTheHandlerReplaysItsLetters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		var applied log
		letters := bury(t, store, "former", "h", "a", "b")
		d := newDispatcher(t, store, applied.handler(nil))
		require.NoError(t, d.Replay(t.Context(), letters[0]))
		requeue(t, store, letters[1])
		r := poll(t, d, func(err error) { t.Error(err) })
		elapse(5 * time.Second)
		r.stop()
		require.Equal(t, []string{"a", "b"}, applied.all())
		for _, m := range letters {
			wantLetter(t, store, m, persistence.DeadLetterReplayed, 5, "before")
		}
	})
}

func TestALetterThatEndsTheProcessIsNotReplayedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		m := bury(t, store, events.DefaultName, "h", "a")[0]
		requeue(t, store, m)
		tries := 0
		live := func() {
			cursors := &cutCursors{OutboxCursorStore: store}
			ctx, kill := context.WithCancel(t.Context())
			d := events.NewDispatcher(store, cursors, store, store)
			require.NoError(t, d.Subscribe("t", "h", func(context.Context, events.Event) error {
				tries++
				cursors.cut.Store(true)
				kill()
				return errKilled
			}))
			_, _ = d.RunOnce(ctx, 10)
			kill()
			time.Sleep(time.Minute)
		}
		for range 5 {
			live()
		}
		require.Equal(t, 1, tries)
		wantLetter(t, store, m, persistence.DeadLetterDead, 6, "its process has ended")
	})
}

func TestAReplayDelaysNoDelivery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		var applied log
		requeue(t, store, bury(t, store, events.DefaultName, "h", "slow", "third")...)
		r := poll(t, newDispatcher(t, store, applied.handler(func(_ context.Context, evt events.Event) error {
			if evt.ID == "slow" {
				time.Sleep(30 * time.Second)
			}
			return nil
		})), func(err error) { t.Error(err) })
		for i := range 5 { // of the same aggregate, too: a replay has no place in the order
			publish(t, store, of("slow", fmt.Sprint("e", i)))
			elapse(2 * time.Second)
		}
		require.Equal(t, []string{"e0", "e1", "e2", "e3", "e4"}, applied.all())
		elapse(25 * time.Second)
		require.Equal(t, []string{"slow", "third"}, applied.all()[5:], "one at a time")
		require.Equal(t, "e4", load(t, store).Cursor.ID)
		r.stop()
	})
}

func TestShutdownLetsAReplayComeToAnEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		var applied log
		letters := bury(t, store, events.DefaultName, "h", "a", "b")
		requeue(t, store, letters...)
		r := poll(t, newDispatcher(t, store, applied.handler(func(context.Context, events.Event) error {
			time.Sleep(3 * time.Second)
			return nil
		})), func(err error) { t.Error(err) })
		synctest.Wait()
		start := time.Now()
		r.stop()
		require.Equal(t, 3*time.Second, time.Since(start))
		require.Equal(t, []string{"a"}, applied.all(), "no replay is started any more")
		wantLetter(t, store, letters[0], persistence.DeadLetterReplayed, 5, "before")
		wantLetter(t, store, letters[1], persistence.DeadLetterRequeued, 5, "before")
		require.Empty(t, load(t, store).Lease.Owner)
	})
}

func TestAReplayThatIsCutOffStaysRequeued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		m := bury(t, store, events.DefaultName, "h", "a")[0]
		requeue(t, store, m)
		var stuck atomic.Bool
		stuck.Store(true)
		var applied log
		d := newDispatcher(t, store, applied.handler(func(ctx context.Context, _ events.Event) error {
			if stuck.Load() {
				<-ctx.Done()
				time.Sleep(2 * time.Second) // and does not heed it at once
				return ctx.Err()
			}
			return nil
		}), events.WithShutdownGrace(5*time.Second))
		r := poll(t, d, func(err error) { t.Error(err) })
		synctest.Wait()
		wantLetter(t, store, m, persistence.DeadLetterDead, 6, "still runs")
		start := time.Now()
		r.stop()
		require.Equal(t, 7*time.Second, time.Since(start))
		require.Empty(t, load(t, store).Lease.Owner)
		wantLetter(t, store, m, persistence.DeadLetterRequeued, 5, "before")

		// The lease is lost.
		var told log
		r = poll(t, d, func(err error) { told.add(err.Error()) })
		synctest.Wait()
		require.NoError(t, store.Rewind(t.Context(), events.DefaultName, persistence.Cursor{}))
		time.Sleep(5 * time.Second)
		stuck.Store(false)
		elapse(time.Minute)
		r.stop()
		require.Equal(t, []string{"a"}, applied.all())
		require.Len(t, told.all(), 1, "the loss of the lease")
		wantLetter(t, store, m, persistence.DeadLetterReplayed, 5, "before")
	})
}

func TestAFaultLeavesALetterRequeuedUntilThereAreMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		letters := bury(t, store, events.DefaultName, "h", "a", "b")
		requeue(t, store, letters...)
		tries := map[string]int{}
		r := poll(t, newDispatcher(t, store, func(_ context.Context, evt events.Event) error {
			if tries[evt.ID]++; evt.ID == "a" && tries["a"] == 10 {
				return nil
			}
			return fmt.Errorf("update: %w", memstore.ErrDeadlock)
		}), nil)
		elapse(10 * time.Minute)
		r.stop()
		require.Equal(t, map[string]int{"a": 10, "b": 10}, tries)
		wantLetter(t, store, letters[0], persistence.DeadLetterReplayed, 5, "before")
		wantLetter(t, store, letters[1], persistence.DeadLetterDead, 6, "deadlock")
	})
}

// countingCursors counts how often letters are looked for.
type countingCursors struct {
	persistence.OutboxCursorStore
	lists atomic.Int64
}

func (c *countingCursors) ListDeadLetters(ctx context.Context, query persistence.DeadLetterQuery) ([]persistence.DeadLetter, error) {
	c.lists.Add(1)
	return c.OutboxCursorStore.ListDeadLetters(ctx, query)
}

func TestRequeuedLettersAreLookedForRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		cursors := &countingCursors{OutboxCursorStore: store}
		d := events.NewDispatcher(store, cursors, store, store)
		r := pollEvery(t, 10*time.Millisecond, d, nil)
		elapse(time.Minute - time.Second)
		require.EqualValues(t, 12, cursors.lists.Load())
		r.stop()
		_, err := d.RunOnce(t.Context(), 1)
		require.NoError(t, err)
		require.EqualValues(t, 13, cursors.lists.Load())
	})
}
