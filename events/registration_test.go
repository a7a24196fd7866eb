package events_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/memstore"
	"github.com/onward-go/outbox/persistence"
)

// withNew returns a dispatcher of the next release, which has a handler more.
func withNew(t *testing.T, store *memstore.Store, old, fresh events.Handler, opts ...events.Option) *events.Dispatcher {
	d := newDispatcher(t, store, old, opts...)
	require.NoError(t, d.Subscribe("t", "new", fresh))
	return d
}

func TestANewHandlerGetsNothingFromBeforeIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, hold := range map[string]func(ctx context.Context, evt events.Event) error{
			"a failing event holds the cursor": func(_ context.Context, evt events.Event) error {
				if evt.ID == "e0" {
					return errors.New("the mail server is down")
				}
				return nil
			},
			"nothing does": func(context.Context, events.Event) error { return nil },
		} {
			store := memstore.New()
			for i := range 10 {
				publish(t, store, of(fmt.Sprint(i), fmt.Sprintf("e%d", i)))
			}
			_, _ = newDispatcher(t, store, hold).RunOnce(t.Context(), 100)
			var got log
			next := withNew(t, store, hold, got.handler(nil))
			_, _ = next.RunOnce(t.Context(), 100)
			require.Empty(t, got.all(), name)
			publish(t, store, of("1", "e10"), of("x", "e11"))
			_, _ = next.RunOnce(t.Context(), 100)
			_, _ = next.RunOnce(t.Context(), 100)
			require.ElementsMatch(t, []string{"e10", "e11"}, got.all(), name)
			for _, s := range subscriptionsOf(t, store) {
				require.True(t, s.Behind == nil || s.Behind.Compare(s.Start) >= 0, name)
			}
		}
	})
}

func TestAFirstDeploymentGetsWhatWasPublishedBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		publish(t, store, of("x", "before"))
		var old, fresh log
		d := withNew(t, store, old.handler(nil), fresh.handler(nil))
		_, err := d.RunOnce(t.Context(), 100)
		require.NoError(t, err)
		require.Equal(t, []string{"before"}, old.all())
		require.Equal(t, []string{"before"}, fresh.all())
	})
}

// Whichever replica holds the lease, the new handler gets all from its registration on.
func TestARollingDeployLosesNothingOfANewHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		held := errors.New("down")
		old := func(_ context.Context, evt events.Event) error {
			if evt.ID == "first" {
				return held
			}
			return nil
		}
		opts := []events.Option{events.WithMaxAttempts(1000)}
		publish(t, store, of("a", "first"), of("b", "second"))
		release1 := poll(t, newDispatcher(t, store, old, opts...), nil)
		elapse(5 * time.Second)
		var got log
		release2 := poll(t, withNew(t, store, old, got.handler(nil), opts...), nil)
		elapse(5 * time.Second)
		var want []string
		send := func() {
			for range 5 {
				id := fmt.Sprintf("n%d", len(want))
				want = append(want, id)
				publish(t, store, of(id, id))
			}
			elapse(5 * time.Second)
		}
		send()
		require.Empty(t, got.all(), "release 1 holds the lease")
		release1.stop()
		send()
		require.ElementsMatch(t, want, got.all())
		rollback := poll(t, newDispatcher(t, store, old, opts...), nil) // the deploy is taken back
		elapse(time.Second)
		release2.stop()
		send()
		release2 = poll(t, withNew(t, store, old, got.handler(nil), opts...), nil)
		rollback.stop()
		send()
		require.ElementsMatch(t, want, got.all())
		release2.stop()
	})
}

func TestHandlersOfReplicasThatStandByAreNotForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		opts := []events.Option{events.WithSubscriptionExpiry(20 * time.Second)}
		none := func(context.Context, events.Event) error { return nil }
		holder := pollEvery(t, time.Hour, newDispatcher(t, store, none, opts...), nil)
		elapse(time.Second)
		var got log
		standby := pollEvery(t, time.Hour, withNew(t, store, none, got.handler(nil), opts...), nil)
		elapse(2 * time.Minute)
		require.Len(t, subscriptionsOf(t, store), 2)
		publish(t, store, event("e"))
		elapse(2 * time.Minute)
		holder.stop()
		elapse(time.Minute)
		require.Equal(t, []string{"e"}, got.all())
		standby.stop()
		holder = poll(t, newDispatcher(t, store, none, opts...), nil)
		elapse(2 * time.Minute)
		require.Len(t, subscriptionsOf(t, store), 1, "no replica has it any more")
		holder.stop()
	})
}

func TestASubscriptionExpiryThatCannotBeKeptIsRefused(t *testing.T) {
	store := memstore.New()
	d := events.NewDispatcher(store, store, store, store, events.WithSubscriptionExpiry(10*time.Second), events.WithLease(11*time.Second))
	_, err := d.RunOnce(t.Context(), 1)
	require.ErrorIs(t, err, persistence.ErrInvalid)
	require.ErrorContains(t, err, "11s")
}

// An operator forgets a dispatcher whose replicas live. One of them makes it anew, and
// the other one's handlers are registered at its next stand.
func TestAForgottenDispatcherLosesNoHandlerOfALivingReplica(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		none := func(context.Context, events.Event) error { return nil }
		publish(t, store, of("a", "history"))
		holder := pollEvery(t, 50*time.Millisecond, newDispatcher(t, store, none), nil)
		elapse(time.Second)
		var got log
		standby := pollEvery(t, 10*time.Second, withNew(t, store, none, got.handler(nil)), nil)
		elapse(time.Second)
		token := load(t, store).Lease.Token
		require.NoError(t, store.Forget(t.Context(), events.DefaultName))
		publish(t, store, of("b", "b"))
		elapse(time.Second) // the holder has made it anew, and the standby does not know
		require.Len(t, subscriptionsOf(t, store), 1)
		require.Greater(t, load(t, store).Lease.Token, token, "no token is given twice")
		publish(t, store, of("c", "c"))
		elapse(20 * time.Second)
		require.Len(t, subscriptionsOf(t, store), 2)
		publish(t, store, of("d", "d"))
		elapse(time.Second)
		holder.stop()
		elapse(20 * time.Second)
		require.ElementsMatch(t, []string{"b", "c", "d"}, got.all())
		standby.stop()
	})
}

// unmarked is a store that has no safe mark yet.
type unmarked struct {
	persistence.OutboxStore
	until time.Time
}

const missing = "row 17 of the fence is held"

func (u *unmarked) SafeMark(ctx context.Context) (persistence.SafeMark, error) {
	mark, err := u.OutboxStore.SafeMark(ctx)
	if time.Now().Before(u.until) {
		mark.Time, mark.Missing = time.Time{}, missing
	}
	return mark, err
}

func TestANewHandlerWaitsForTheFirstSafeMark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		none := func(context.Context, events.Event) error { return nil }
		_, err := newDispatcher(t, store, none).RunOnce(t.Context(), 100)
		require.NoError(t, err)
		publish(t, store, event("before"))
		var got log
		for _, c := range []struct {
			wait   time.Duration
			failed bool
		}{{time.Minute, true}, {time.Second, false}} {
			d := events.NewDispatcher(&unmarked{store, time.Now().Add(c.wait)}, store, store, store)
			require.NoError(t, d.Subscribe("t", "h", none))
			require.NoError(t, d.Subscribe("t", "new", got.handler(nil)))
			_, err := d.RunOnce(t.Context(), 100)
			if !c.failed {
				require.NoError(t, err)
				continue
			}
			require.ErrorContains(t, err, missing)
			require.Len(t, subscriptionsOf(t, store), 1)
		}
		require.Empty(t, got.all())
	})
}

func TestStartNowWaitsForTheFirstSafeMark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		publish(t, store, event("before"))
		var got log
		d := events.NewDispatcher(&unmarked{store, time.Now().Add(time.Second)}, store, store, store, events.WithStartNow())
		require.NoError(t, d.Subscribe("t", "h", got.handler(nil)))
		_, err := d.RunOnce(t.Context(), 100)
		require.NoError(t, err)
		require.Empty(t, got.all())
		publish(t, store, event("after"))
		_, err = d.RunOnce(t.Context(), 100)
		require.NoError(t, err)
		require.Equal(t, []string{"after"}, got.all())
	})
}

// early is a store whose mark a producer holds back, as long as nobody has registered.
type early struct {
	persistence.OutboxStore
	store *memstore.Store
}

func (e early) SafeMark(ctx context.Context) (persistence.SafeMark, error) {
	mark, err := e.OutboxStore.SafeMark(ctx)
	all, listErr := e.store.ListSubscriptions(ctx)
	if !slices.ContainsFunc(all, func(s persistence.SubscriptionState) bool { return s.Handler == "new" }) {
		mark.Time = time.UnixMicro(1).UTC()
	}
	return mark, errors.Join(err, listErr)
}

func TestWhatIsVisibleBeyondTheMarkIsSettledForANewHandlerUpToABound(t *testing.T) {
	const beyond = 3
	many := make([]events.Event, persistence.MaxSettledAtStart+beyond)
	for i := range many {
		many[i] = of(fmt.Sprint(i%100), fmt.Sprintf("e%05d", i))
	}
	none := func(context.Context, events.Event) error { return nil }
	for name, c := range map[string]struct {
		before int // so many have been delivered
		opts   []events.Option
	}{
		"a new handler":  {before: 1},
		"WithStartNow()": {opts: []events.Option{events.WithStartNow()}},
	} {
		t.Run(name, func(t *testing.T) {
			store := memstore.New()
			publish(t, store, many...)
			if c.before > 0 {
				_, err := newDispatcher(t, store, none).RunOnce(t.Context(), c.before)
				require.NoError(t, err)
			}
			var got log
			var logged strings.Builder
			opts := append(c.opts, events.WithLogger(slog.New(slog.NewTextHandler(&logged, nil))))
			d := events.NewDispatcher(early{store, store}, store, store, store, opts...)
			require.NoError(t, d.Subscribe("t", "h", none))
			require.NoError(t, d.Subscribe("t", "new", got.handler(nil)))
			for range 4 {
				_, err := d.RunOnce(t.Context(), 5000)
				require.NoError(t, err)
			}
			require.Len(t, got.all(), beyond-c.before, "what lies before the cursor is not counted")
			require.Contains(t, logged.String(), "new handlers get some events from before")
		})
	}
}

func subscriptionsOf(t *testing.T, store *memstore.Store) []persistence.SubscriptionState {
	all, err := store.ListSubscriptions(t.Context())
	require.NoError(t, err)
	return all
}
