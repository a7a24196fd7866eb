package events_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/memstore"
	"github.com/onward-go/outbox/persistence"
)

// Every handler of a type gets each event, however many of them take batches, by
// Poll and by one RunOnce.
func TestSeveralBatchHandlersOfOneType(t *testing.T) {
	for _, polls := range []bool{false, true} {
		for _, concurrency := range []int{1, 4} {
			for _, batchHandlers := range []int{1, 2, 3} {
				for _, single := range []int{0, 1, 2} {
					t.Run(fmt.Sprint(polls, concurrency, batchHandlers, single), func(t *testing.T) {
						synctest.Test(t, func(t *testing.T) {
							store := memstore.New()
							d := events.NewDispatcher(store, store, store, store, events.WithConcurrency(concurrency), events.WithBatchSize(8))
							var got []*batches
							for i := range batchHandlers {
								got = append(got, &batches{})
								require.NoError(t, d.SubscribeBatch("t", fmt.Sprint("batch", i), got[i].handler(nil)))
							}
							for i := range single {
								b := &batches{}
								got = append(got, b)
								require.NoError(t, d.Subscribe("t", fmt.Sprint("single", i), b.log.handler(nil)))
							}
							publishMany(t, store, 40, 7)
							if polls {
								r := poll(t, d, func(err error) { t.Error(err) })
								elapse(time.Second)
								r.stop()
							} else {
								n, err := d.RunOnce(t.Context(), 100)
								require.NoError(t, err)
								require.Equal(t, 40, n)
							}
							for _, b := range got {
								require.Len(t, b.all(), 40)
								requireOrder(t, b.all(), 7)
							}
							require.Equal(t, "e39", load(t, store).Cursor.ID)
						})
					})
				}
			}
		}
	}
}

// A batch lets a lane go as soon as it has decided on what it has of it: an event
// whose back-off ends while the rest of the batch is at work is tried again then,
// and a later event of an aggregate does not wait for the rest either.
func TestALaneWaitsForItsPartOfABatchAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		var applied batches
		failures := 1
		apply := applied.handler(nil)
		d := newBatchDispatcher(t, store, func(ctx context.Context, evts []events.Event) error {
			if evts[0].ID == "e0" && failures > 0 {
				if len(evts) == 1 {
					failures--
				}
				return errBroken
			}
			time.Sleep(time.Duration(len(evts)) * time.Second)
			return apply(ctx, evts)
		}, events.WithConcurrency(3), events.WithBackoff(4*time.Second, 4*time.Second), events.WithHandlerTimeout(time.Minute))
		publishMany(t, store, 33, 32) // e32 is of e0's aggregate, and of the second half
		start := time.Now()
		r := poll(t, d, nil)
		elapse(time.Minute)
		require.Len(t, applied.all(), 33)
		requireOrder(t, applied.all(), 32)
		// The halves after e0 take 1, 2, 4, 8 and 16 seconds.
		require.LessOrEqual(t, applied.when["e0"].Sub(start), 6*time.Second, "its back-off ended after 4 seconds")
		require.LessOrEqual(t, applied.when["e32"].Sub(start), 8*time.Second)
		require.GreaterOrEqual(t, applied.when["e31"].Sub(start), 30*time.Second)
		r.stop()
		require.Equal(t, "e32", load(t, store).Cursor.ID)
	})
}

// A handler whose back-off is over sooner than its batch is tried again all the
// same, at every concurrency, until it succeeds.
func TestABackoffThatEndsDuringItsBatch(t *testing.T) {
	for _, concurrency := range []int{1, 2, 8} {
		for _, bad := range []string{"e0", "e5", "e19"} {
			t.Run(fmt.Sprint(concurrency, bad), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store := memstore.New()
					var applied batches
					failures := 2
					apply := applied.handler(nil)
					d := newBatchDispatcher(t, store, func(ctx context.Context, evts []events.Event) error {
						isBad := slices.ContainsFunc(evts, func(evt events.Event) bool { return evt.ID == bad })
						for range evts {
							time.Sleep(time.Second)
						}
						if isBad && failures > 0 { // one lane, so one at a time
							if len(evts) == 1 {
								failures--
							}
							return errBroken
						}
						return apply(ctx, evts)
					}, events.WithConcurrency(concurrency), events.WithBackoff(time.Millisecond, time.Millisecond), events.WithBatchSize(20))
					publishMany(t, store, 20, 20)
					r := poll(t, d, nil)
					elapse(5 * time.Minute)
					require.Len(t, applied.all(), 20)
					r.stop()
					require.Equal(t, "e19", load(t, store).Cursor.ID)
				})
			})
		}
	}
}

// One of two handlers that fails each time, and is due again at once, holds the
// other one back by no more than its own try.
func TestAFailingBatchHandlerHoldsBackNoOtherOfItsType(t *testing.T) {
	for _, takesBatches := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			store := memstore.New()
			var applied batches
			tries := 0
			d := newBatchDispatcher(t, store, func(context.Context, []events.Event) error {
				tries++
				time.Sleep(time.Second)
				return errBroken
			}, events.WithBackoff(time.Millisecond, time.Millisecond), events.WithMaxAttempts(1000))
			if takesBatches {
				require.NoError(t, d.SubscribeBatch("t", "other", applied.handler(nil)))
			} else {
				require.NoError(t, d.Subscribe("t", "other", applied.log.handler(nil)))
			}
			publishMany(t, store, 1, 1)
			r := poll(t, d, func(error) {})
			elapse(time.Minute)
			require.Equal(t, []string{"e0"}, applied.all())
			require.Greater(t, tries, 10)
			r.stop()
		})
	}
}

// flaky refuses to begin a transaction as often as it is told.
type flaky struct {
	persistence.Transactor
	mu   sync.Mutex
	fail int
}

func (f *flaky) refuse(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail = n
}

func (f *flaky) Atomically(ctx context.Context, fn func(context.Context) error) error {
	f.mu.Lock()
	refused := f.fail > 0
	f.fail--
	f.mu.Unlock()
	if refused {
		return errors.New("no connection")
	}
	return f.Transactor.Atomically(ctx, fn)
}

// Of a batch that is halved, some parts cannot begin, and later ones can: what is
// of one of their aggregates waits for them.
func TestAHalfThatCannotBeginKeepsItsAggregatesOrder(t *testing.T) {
	for _, published := range []string{"x1 a1 a2 y1", "a1 a2", "a1 a2 a3 a4 a5", "x1 a1 a2 b1 b2 b3 y1", "x1 a1 a2 a3 a4 b1 b2 b3 c1 c2"} {
		for _, concurrency := range []int{1, 4} {
			for refused := 1; refused <= 4; refused++ {
				for _, polls := range []bool{false, true} {
					t.Run(fmt.Sprint(published, concurrency, refused, polls), func(t *testing.T) {
						synctest.Test(t, func(t *testing.T) {
							requireOrderAroundRefusals(t, strings.Fields(published), concurrency, refused, polls)
						})
					})
				}
			}
		}
	}
}

// requireOrderAroundRefusals has a first batch fail, and so many transactions after
// it not begin.
func requireOrderAroundRefusals(t *testing.T, published []string, concurrency, refused int, polls bool) {
	store := memstore.New()
	tx := &flaky{Transactor: store}
	var applied batches
	failed := false
	apply := applied.handler(nil)
	d := events.NewDispatcher(store, store, tx, store, events.WithConcurrency(concurrency))
	require.NoError(t, d.SubscribeBatch("t", "h", func(ctx context.Context, evts []events.Event) error {
		if !failed {
			failed = true
			tx.refuse(refused)
			return errBroken
		}
		return apply(ctx, evts)
	}))
	var evts []events.Event
	for _, id := range published {
		evts = append(evts, of(id[:1], id))
	}
	publish(t, store, evts...)
	if polls {
		r := poll(t, d, func(error) {})
		elapse(time.Minute)
		r.stop()
	} else {
		for range refused + 2 {
			_, _ = d.RunOnce(t.Context(), 100)
		}
	}
	require.Len(t, applied.all(), len(published))
	for _, id := range published {
		own := slices.DeleteFunc(applied.all(), func(other string) bool { return other[0] != id[0] })
		require.True(t, slices.IsSorted(own), "%v", own)
	}
}

// refusing says that a marker cannot be written.
type refusing struct {
	*memstore.Store
	id string
}

func (r *refusing) Record(ctx context.Context, markers ...persistence.Marker) ([]bool, error) {
	if slices.ContainsFunc(markers, func(m persistence.Marker) bool { return m.Event.ID == r.id }) {
		return nil, errBroken
	}
	return r.Store.Record(ctx, markers...)
}

func (r *refusing) RecordNew(ctx context.Context, marker persistence.Marker) error {
	_, err := r.Record(ctx, marker)
	return err
}

// Whatever keeps a batch from beginning may be due to one of its events, which is
// found, and counted alone.
func TestAnEventThatLetsNoBatchBeginIsFound(t *testing.T) {
	for aggregates, applies := range map[int]int{1: 7, 20: 19} {
		synctest.Test(t, func(t *testing.T) {
			store := memstore.New()
			var applied batches
			d := events.NewDispatcher(store, store, store, &refusing{store, "e7"})
			require.NoError(t, d.SubscribeBatch("t", "h", applied.handler(nil)))
			publishMany(t, store, 20, aggregates)
			r := poll(t, d, func(error) {})
			elapse(3 * time.Minute)
			require.Len(t, applied.all(), applies)
			attempts := load(t, store).Attempts
			require.Len(t, attempts, 1)
			require.Equal(t, "e7", attempts[0].Event.ID)
			r.stop()
		})
	}
}

// While a lane waits for a worker, another batch handler of its head becomes due.
// It is delivered to both.
func TestALaneThatWaitsForOneBatchHandlerWhileAnotherBecomesDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		var first, second batches
		d := events.NewDispatcher(store, store, narrow{store}, store, events.WithBackoff(time.Second, time.Second))
		failed := false
		require.NoError(t, d.SubscribeBatch("t", "first", first.handler(func(context.Context, events.Event) error {
			if !failed {
				failed = true
				return errBroken
			}
			return nil
		})))
		require.NoError(t, d.SubscribeBatch("t", "second", second.handler(nil)))
		require.NoError(t, d.Subscribe("slow", "h", func(context.Context, events.Event) error {
			time.Sleep(10 * time.Second)
			return nil
		}))
		slow := of("b", "b1")
		slow.Type = "slow"
		publish(t, store, of("a", "a1"), slow)
		r := poll(t, d, nil)
		elapse(5 * time.Second)
		require.Empty(t, append(first.all(), second.all()...), "the slow one runs, and nothing else can")
		elapse(time.Minute)
		require.Equal(t, []string{"a1", "a1"}, append(first.all(), second.all()...))
		r.stop()
	})
}
