package memstore_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/memstore"
	"github.com/onward-go/outbox/persistence"
)

func TestADeadlockEndsOneTransaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		rows := memstore.NewTable[string, int](store)
		var firstLocks sync.WaitGroup
		firstLocks.Add(2)
		results := make(chan error, 2)
		for _, order := range [][2]string{{"a", "b"}, {"b", "a"}} {
			go func() {
				results <- store.Atomically(t.Context(), func(ctx context.Context) error {
					if err := rows.Put(ctx, order[0], 1); err != nil {
						return err
					}
					firstLocks.Done()
					firstLocks.Wait()
					_ = rows.Put(ctx, order[1], 1) // the victim swallows the error
					return nil
				})
			}()
		}
		errs := []error{<-results, <-results}
		require.ErrorIs(t, errors.Join(errs...), memstore.ErrDeadlock)
		require.True(t, errs[0] == nil || errs[1] == nil, "one of them commits")
		require.Len(t, rows.All(t.Context()), 2)
	})
}

func TestARowLockedInASavepointIsFreeAfterItsRollback(t *testing.T) {
	store := memstore.New()
	rows := memstore.NewTable[string, int](store)
	require.NoError(t, store.Atomically(t.Context(), func(ctx context.Context) error {
		require.Error(t, store.Atomically(ctx, func(ctx context.Context) error {
			require.NoError(t, rows.Put(ctx, "a", 1))
			return errors.New("roll back")
		}))
		_, exists := rows.Get(ctx, "a")
		require.False(t, exists)
		return store.Atomically(persistence.Detach(ctx), func(ctx context.Context) error { return rows.Put(ctx, "a", 2) })
	}))
	value, _ := rows.Get(t.Context(), "a")
	require.Equal(t, 2, value)
}

func TestUpdatesOfARowAreNotLost(t *testing.T) {
	store := memstore.New()
	rows := memstore.NewTable[string, int](store)
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			err := store.Atomically(t.Context(), func(ctx context.Context) error {
				return rows.Update(ctx, "n", func(n int, _ bool) (int, error) { return n + 1, nil })
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	n, _ := rows.Get(t.Context(), "n")
	require.Equal(t, 50, n)
}

func TestStampsRiseStrictlyInTheOrderOfCommits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the clock stands still
		store := memstore.New()
		for i := range 100 {
			require.NoError(t, store.Atomically(t.Context(), func(ctx context.Context) error {
				return store.Append(ctx, persistence.Record{ID: fmt.Sprint(100 - i), EventType: "t", AggregateType: "a", AggregateID: "1"})
			}))
		}
		records, err := store.ReadAfter(t.Context(), persistence.Cursor{}, 1000)
		require.NoError(t, err)
		for i, r := range records {
			require.Equal(t, fmt.Sprint(100-i), r.ID)
		}
	})
}

func TestMaxPayload(t *testing.T) {
	for limit, want := range map[int]bool{0: false, 2: false, 3: true} {
		store := memstore.New(memstore.WithMaxPayload(limit))
		err := store.Atomically(t.Context(), func(ctx context.Context) error {
			return store.Append(ctx, persistence.Record{ID: "a", EventType: "t", AggregateType: "a", AggregateID: "1", Payload: []byte("abc")})
		})
		if want {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, persistence.ErrInvalid)
		}
	}
}

func TestARolledBackSavepointLetsWaitersGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		rows := memstore.NewTable[string, int](store)
		locked, waiterDone := make(chan struct{}), make(chan error, 1)
		require.NoError(t, store.Atomically(t.Context(), func(ctx context.Context) error {
			err := store.Atomically(ctx, func(ctx context.Context) error {
				require.NoError(t, rows.Put(ctx, "a", 1))
				go func() {
					close(locked)
					waiterDone <- store.Atomically(t.Context(), func(ctx context.Context) error { return rows.Put(ctx, "a", 2) })
				}()
				<-locked
				synctest.Wait() // the other waits for the row
				return errors.New("roll back")
			})
			require.Error(t, err)
			return <-waiterDone // while this transaction is open
		}))
		value, _ := rows.Get(t.Context(), "a")
		require.Equal(t, 2, value)
	})
}

func TestAnUpdateMayReadTheStore(t *testing.T) {
	store := memstore.New()
	rows := memstore.NewTable[string, int](store)
	require.NoError(t, store.Atomically(t.Context(), func(ctx context.Context) error {
		return rows.Update(ctx, "a", func(int, bool) (int, error) {
			n, _ := rows.Get(ctx, "b")
			return n + 1, nil
		})
	}))
	value, _ := rows.Get(t.Context(), "a")
	require.Equal(t, 1, value)
}

func TestGoroutinesOfOneTransactionLoseNoUpdate(t *testing.T) {
	store := memstore.New()
	rows := memstore.NewTable[string, int](store)
	require.NoError(t, store.Atomically(t.Context(), func(ctx context.Context) error {
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				assert.NoError(t, rows.Update(ctx, "a", func(n int, _ bool) (int, error) {
					runtime.Gosched()
					return n + 1, nil
				}))
			})
		}
		all.Wait()
		return nil
	}))
	value, _ := rows.Get(t.Context(), "a")
	require.Equal(t, 100, value)
}

func TestAnUpdateThatWritesItsRowItselfIsRefused(t *testing.T) {
	store := memstore.New()
	rows := memstore.NewTable[string, int](store)
	require.NoError(t, store.Atomically(t.Context(), func(ctx context.Context) error {
		require.NoError(t, rows.Put(ctx, "a", 1))
		for _, write := range []func() error{
			func() error { return rows.Put(ctx, "a", 5) },
			func() error { return rows.Delete(ctx, "a") },
			func() error { return rows.Update(ctx, "a", func(n int, _ bool) (int, error) { return n + 10, nil }) },
		} {
			require.ErrorIs(t, rows.Update(ctx, "a", func(n int, _ bool) (int, error) { return n + 1, write() }), persistence.ErrInvalid)
			n, _ := rows.Get(ctx, "a")
			require.Equal(t, 1, n)
		}
		return rows.Update(ctx, "a", func(n int, _ bool) (int, error) { return n + 1, rows.Put(ctx, "b", n) })
	}))
	require.Equal(t, map[string]int{"a": 2, "b": 1}, rows.All(t.Context()))
}
