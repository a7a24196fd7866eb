package events_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/memstore"
	"github.com/onward-go/outbox/persistence"
)

const longest = time.Duration(math.MaxInt64)

// Each option at zero, its least, its greatest and below zero: it works, or it is
// refused before anything is read or written.
func TestOptionsAtTheirExtremesWorkOrAreRefused(t *testing.T) {
	type option = events.Option
	year := func(y int) time.Time { return time.Date(y, 1, 1, 0, 0, 0, 0, time.UTC) }
	for name, o := range map[string]struct{ works, refused []option }{
		"WithName": {
			[]option{events.WithName("n"), events.WithName(strings.Repeat("n", 128))},
			[]option{events.WithName(""), events.WithName(strings.Repeat("n", 129)), events.WithName("\x00"), events.WithName("\xff")},
		},
		"WithMaxAttempts": {
			[]option{events.WithMaxAttempts(1), events.WithMaxAttempts(math.MaxInt)},
			[]option{events.WithMaxAttempts(0), events.WithMaxAttempts(-1)},
		},
		"WithConcurrency": {
			[]option{events.WithConcurrency(1), events.WithConcurrency(math.MaxInt)},
			[]option{events.WithConcurrency(0), events.WithConcurrency(math.MinInt)},
		},
		"WithBatchSize": {
			[]option{events.WithBatchSize(1), events.WithBatchSize(math.MaxInt)},
			[]option{events.WithBatchSize(0), events.WithBatchSize(-1)},
		},
		"WithLease": {
			[]option{events.WithLease(100 * time.Millisecond), events.WithLease(longest)},
			[]option{events.WithLease(0), events.WithLease(time.Millisecond), events.WithLease(-1), events.WithLease(math.MinInt64)},
		},
		"WithBackoff": {
			[]option{events.WithBackoff(1, 1), events.WithBackoff(1, longest)},
			[]option{events.WithBackoff(0, 1), events.WithBackoff(-1, 1), events.WithBackoff(2, 1), events.WithBackoff(0, 0)},
		},
		"WithHandlerTimeout": {
			[]option{events.WithHandlerTimeout(time.Millisecond), events.WithHandlerTimeout(longest)},
			[]option{events.WithHandlerTimeout(0), events.WithHandlerTimeout(1), events.WithHandlerTimeout(-1)},
		},
		"WithShutdownGrace": {
			[]option{events.WithShutdownGrace(0), events.WithShutdownGrace(longest)},
			[]option{events.WithShutdownGrace(-1)},
		},
		"WithWindow": {
			[]option{events.WithWindow(1, 1), events.WithWindow(math.MaxInt, math.MaxInt), events.WithWindow(1, math.MaxInt), events.WithWindow(math.MaxInt, 1)},
			[]option{events.WithWindow(0, 1), events.WithWindow(1, 0), events.WithWindow(-1, -1)},
		},
		"WithSubscriptionExpiry": {
			[]option{events.WithSubscriptionExpiry(longest)},
			[]option{events.WithSubscriptionExpiry(0), events.WithSubscriptionExpiry(-1)},
		},
		"WithStartTime": {
			[]option{events.WithStartTime(time.Time{}), events.WithStartTime(year(1000))},
			[]option{events.WithStartTime(year(0)), events.WithStartTime(year(-4000)), events.WithStartTime(year(10_000))},
		},
		"WithLogger": {[]option{events.WithLogger(nil)}, nil},
		"nil":        {nil, []option{nil}},
	} {
		for i, opt := range o.works {
			for _, batch := range []bool{false, true} {
				t.Run(fmt.Sprint(name, " works ", i, " ", batch), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { requireWorks(t, opt, batch) })
				})
			}
		}
		for i, opt := range o.refused {
			t.Run(fmt.Sprint(name, " refused ", i), func(t *testing.T) {
				store := memstore.New()
				d := events.NewDispatcher(store, store, store, store, opt)
				require.NoError(t, d.Subscribe("t", "h", nothing))
				_, err := d.RunOnce(t.Context(), 1)
				require.ErrorIs(t, err, persistence.ErrInvalid)
				require.ErrorIs(t, d.Poll(t.Context(), time.Second, 1, nil), persistence.ErrInvalid)
				states, err := store.ListCursors(t.Context())
				require.NoError(t, err)
				require.Empty(t, states)
			})
		}
	}
}

// requireWorks fails unless events are delivered, one of which fails at first.
func requireWorks(t *testing.T, opt events.Option, batch bool) {
	store := memstore.New()
	d := events.NewDispatcher(store, store, store, store, events.WithBackoff(time.Second, time.Second), opt)
	var applied log
	failed := false
	check := func(_ context.Context, evt events.Event) error {
		if evt.ID == "e3" && !failed {
			failed = true
			return memstore.ErrDeadlock // it costs no attempt
		}
		return nil
	}
	if batch {
		require.NoError(t, d.SubscribeBatch("t", "h", func(ctx context.Context, evts []events.Event) error {
			for _, evt := range evts {
				if err := applied.handler(check)(ctx, evt); err != nil {
					return err
				}
			}
			return nil
		}))
	} else {
		require.NoError(t, d.Subscribe("t", "h", applied.handler(check)))
	}
	publishMany(t, store, 12, 4)
	r := pollEvery(t, 100*time.Millisecond, d, nil)
	elapse(time.Minute)
	require.Len(t, applied.all(), 12)
	r.stop()
	publish(t, store, of("last", "last"))
	_, err := d.RunOnce(t.Context(), 10)
	require.NoError(t, err)
	require.Len(t, applied.all(), 13)
}

func TestPollAtItsExtremes(t *testing.T) {
	for _, interval := range []time.Duration{time.Millisecond, longest} {
		for _, batch := range []int{1, math.MaxInt} {
			t.Run(fmt.Sprint(interval, " ", batch), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store := memstore.New()
					var applied log
					d := newDispatcher(t, store, applied.handler(nil), events.WithConcurrency(1))
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					if interval == longest {
						ctx, cancel = context.WithTimeout(t.Context(), time.Hour)
					}
					defer cancel()
					done := make(chan error)
					go func() { done <- d.Poll(ctx, interval, batch, nil) }()
					for range 20 { // the wait for the next read grows
						d.Wake()
						synctest.Wait()
					}
					for i := range 70 {
						publish(t, store, event(fmt.Sprint("e", i)))
						d.Wake()
						synctest.Wait()
					}
					require.NoError(t, <-done)
					require.Len(t, applied.all(), 70)
				})
			})
		}
	}
	store := memstore.New()
	d := newDispatcher(t, store, nothing)
	for _, interval := range []time.Duration{0, -1} {
		require.ErrorIs(t, d.Poll(t.Context(), interval, 1, nil), persistence.ErrInvalid)
	}
	for _, batch := range []int{0, -1, math.MinInt} {
		require.ErrorIs(t, d.Poll(t.Context(), 1, batch, nil), persistence.ErrInvalid)
		_, err := d.RunOnce(t.Context(), batch)
		require.ErrorIs(t, err, persistence.ErrInvalid)
	}
}

// The time of a handler may be too short for anything, and its dead letter is written.
func TestAHandlerWhoseTimeIsTooShortEndsInADeadLetter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries, letters := attempts(t, time.Hour, func(_ int, ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}, events.WithMaxAttempts(1), events.WithHandlerTimeout(time.Millisecond))
		require.Len(t, tries, 1)
		require.Len(t, letters, 1)
	})
}
