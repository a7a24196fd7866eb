package events_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/memstore"
	"github.com/onward-go/outbox/persistence"
)

// attempts returns when a handler of one event was tried, with what it returned.
func attempts(t *testing.T, span time.Duration, h func(n int, ctx context.Context) error, opts ...events.Option) (tries []time.Duration, letters []persistence.DeadLetter) {
	t.Helper()
	store := memstore.New()
	publish(t, store, event("a"))
	start := time.Now()
	d := newDispatcher(t, store, func(ctx context.Context, _ events.Event) error {
		tries = append(tries, time.Since(start))
		return h(len(tries), ctx)
	}, opts...)
	r := poll(t, d, nil)
	elapse(span)
	r.stop()
	letters, err := store.ListDeadLetters(context.Background(), persistence.DeadLetterQuery{Limit: 10})
	require.NoError(t, err)
	return tries, letters
}

func TestTheBackOffDoublesUpToItsMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries, letters := attempts(t, time.Hour, func(int, context.Context) error { return errBroken },
			events.WithMaxAttempts(8), events.WithBackoff(time.Second, 10*time.Second))
		require.Len(t, tries, 8)
		for i, want := range []time.Duration{1, 2, 4, 8, 10, 10, 10} {
			waited := tries[i+1] - tries[i]
			require.GreaterOrEqual(t, waited, want*time.Second/2)
			require.LessOrEqual(t, waited, want*time.Second)
		}
		require.Len(t, letters, 1)
		require.Equal(t, 8, letters[0].Attempts)
	})
}

func TestATransientFaultSpendsNoAttemptUntilThereAreMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries, letters := attempts(t, time.Hour, func(n int, _ context.Context) error {
			if n <= 9 {
				return fmt.Errorf("update: %w", memstore.ErrDeadlock)
			}
			return nil
		}, events.WithMaxAttempts(1), events.WithBackoff(time.Second, time.Second))
		require.Len(t, tries, 10)
		require.Empty(t, letters)

		tries, letters = attempts(t, time.Hour, func(int, context.Context) error { return memstore.ErrDeadlock },
			events.WithMaxAttempts(2), events.WithBackoff(time.Second, time.Second))
		require.Len(t, tries, 20)
		require.Len(t, letters, 1)
		require.Equal(t, 2, letters[0].Attempts)
	})
}

func TestAFaultIsSoonTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries, _ := attempts(t, time.Minute, func(int, context.Context) error { return memstore.ErrDeadlock },
			events.WithBackoff(20*time.Second, time.Hour))
		require.GreaterOrEqual(t, len(tries), 6)
	})
}

func TestAHandlerThatTakesTooLongHasFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries, letters := attempts(t, time.Hour, func(_ int, ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}, events.WithMaxAttempts(2), events.WithHandlerTimeout(3*time.Second))
		require.Len(t, tries, 2)
		require.Len(t, letters, 1)
		require.Contains(t, letters[0].LastError, "timed out after 3s")
	})
}

func TestAHandlerThatMayTakeForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries, letters := attempts(t, time.Hour, func(int, context.Context) error { return nil }, events.WithHandlerTimeout(math.MaxInt64))
		require.Len(t, tries, 1)
		require.Empty(t, letters)
	})
}

// misledStore says that markers exist which do not.
type misledStore struct {
	*memstore.Store
	left int
}

func (m *misledStore) RecordNew(ctx context.Context, marker persistence.Marker) error {
	if m.left--; m.left >= 0 {
		return fmt.Errorf("trigger: %w", persistence.ErrApplied)
	}
	return m.Store.RecordNew(ctx, marker)
}

// A database's refusal of a marker may have another reason.
func TestAMarkerThatIsSaidToExistIsLookedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		d := events.NewDispatcher(store, store, store, &misledStore{store, 3})
		var applied log
		require.NoError(t, d.Subscribe("t", "h", applied.handler(nil)))
		publishMany(t, store, 2, 1)
		var told []error
		r := poll(t, d, func(err error) { told = append(told, err) })
		elapse(time.Minute)
		r.stop()
		require.Equal(t, []string{"e0", "e1"}, applied.all())
		require.NotEmpty(t, told)
		require.ErrorContains(t, told[0], "is said to exist, and does not")
	})
}

func TestAPermanentFailureIsNotTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries, letters := attempts(t, time.Hour, func(int, context.Context) error {
			return fmt.Errorf("decode: %w", events.Permanent(errBroken))
		})
		require.Len(t, tries, 1)
		require.Len(t, letters, 1)
		require.Equal(t, "decode: broken", letters[0].LastError)
	})
	require.NoError(t, events.Permanent(nil))
	require.ErrorIs(t, events.Permanent(errBroken), errBroken)
}

func TestABackOffOutlivesTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		publish(t, store, event("a"))
		var tried log
		start := func() *replica {
			return poll(t, newDispatcher(t, store, func(context.Context, events.Event) error {
				tried.add("a")
				return errBroken
			}, events.WithBackoff(time.Hour, time.Hour)), nil)
		}
		r := start()
		elapse(time.Second)
		r.stop()
		r = start()
		elapse(29 * time.Minute)
		require.Len(t, tried.all(), 1)
		elapse(32 * time.Minute)
		require.Len(t, tried.all(), 2)
		r.stop()
		require.Equal(t, 2, load(t, store).Attempts[0].Attempts)
	})
}

// errKilled stands for the end of the process.
var errKilled = errors.New("killed")

func TestAnEventThatKillsTheProcessIsDeadLettered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		var applied log
		for i := range 10 {
			publish(t, store, of(fmt.Sprint("aggregate", i), fmt.Sprint("e", i)), of(fmt.Sprint("aggregate", i), fmt.Sprint("f", i)))
		}
		kills := 0
		// A process: its sidecar is cut off when it is killed, and its handlers
		// never commit any more.
		live := func() (killed bool) {
			cursors := &cutCursors{OutboxCursorStore: store}
			d := events.NewDispatcher(store, cursors, store, store, events.WithMaxAttempts(3))
			ctx, kill := context.WithCancelCause(t.Context())
			defer kill(nil)
			require.NoError(t, d.Subscribe("t", "h", applied.handler(func(ctx context.Context, evt events.Event) error {
				time.Sleep(time.Millisecond)
				if evt.ID == "e4" {
					kills++
					cursors.cut.Store(true)
					kill(errKilled)
				}
				if cursors.cut.Load() {
					return errKilled
				}
				return nil
			})))
			_, err := d.RunOnce(ctx, 100)
			for errors.Is(err, persistence.ErrLeaseHeld) {
				time.Sleep(time.Second)
				_, err = d.RunOnce(ctx, 100)
			}
			return cursors.cut.Load()
		}
		for live() {
			require.Less(t, kills, 10)
		}
		require.Equal(t, 4, kills, "the first is not counted: nobody knew")
		letters, err := store.ListDeadLetters(t.Context(), persistence.DeadLetterQuery{Limit: 10})
		require.NoError(t, err)
		require.Len(t, letters, 1, "nobody else is blamed")
		require.Equal(t, "e4", letters[0].Record.ID)
		require.Equal(t, 3, letters[0].Attempts)
		require.Contains(t, letters[0].LastError, "the process ended")
		require.Len(t, applied.all(), 19)
		require.Contains(t, applied.all(), "f4")
	})
}

func TestATryThatIsCountedAheadIsTakenBackWhenTheDispatcherStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		publish(t, store, event("a"))
		require.NoError(t, store.Create(t.Context(), events.DefaultName, persistence.Cursor{}))
		_, err := store.Acquire(t.Context(), events.DefaultName, "dead process", time.Second)
		require.NoError(t, err)
		time.Sleep(2 * time.Second)
		for range 3 { // as often as you like
			ctx, cancel := context.WithCancel(t.Context())
			d := newDispatcher(t, store, func(ctx context.Context, _ events.Event) error {
				require.Equal(t, 1, load(t, store).Attempts[0].Attempts, "it is counted ahead")
				cancel()
				<-ctx.Done()
				return ctx.Err()
			})
			_, err := d.RunOnce(ctx, 1)
			require.ErrorIs(t, err, context.Canceled)
			require.Zero(t, load(t, store).Attempts[0].Attempts)
			// Its process is followed uncleanly, too.
			_, err = store.Acquire(t.Context(), events.DefaultName, "dead process", time.Second)
			require.NoError(t, err)
			time.Sleep(2 * time.Second)
		}
	})
}
