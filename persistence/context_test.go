package persistence_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/memstore"
	"github.com/onward-go/outbox/persistence"
)

type key struct{}

func TestDetachHidesTransactionsAndNothingElse(t *testing.T) {
	one, two := memstore.New(), memstore.New()
	ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "kept"))
	require.NoError(t, one.Atomically(ctx, func(ctx context.Context) error {
		return two.Atomically(ctx, func(ctx context.Context) error {
			detached := persistence.Detach(ctx)
			require.Equal(t, "kept", detached.Value(key{}))
			require.Nil(t, persistence.Innermost(detached))
			require.NotNil(t, persistence.Innermost(ctx))
			for _, store := range []*memstore.Store{one, two} {
				_, err := persistence.Current(detached, store)
				require.ErrorIs(t, err, persistence.ErrNoTransaction)
				_, err = persistence.Current(ctx, store)
				require.NoError(t, err)
			}
			require.ErrorIs(t, persistence.AfterCommit(detached, func(context.Context) {}), persistence.ErrNoTransaction)
			// A transaction of its own, not a savepoint of the outer.
			require.NoError(t, one.Atomically(detached, func(ctx context.Context) error { return one.Append(ctx, valid("independent")) }))
			records, err := one.ReadAfter(detached, persistence.Cursor{}, 1)
			require.NoError(t, err)
			require.Len(t, records, 1)
			return nil
		})
	}))
	cancel()
	require.ErrorIs(t, persistence.Detach(ctx).Err(), context.Canceled)
}

func TestAfterCommitRunsOnTheInnermostDatabase(t *testing.T) {
	one, two := memstore.New(), memstore.New()
	var ran []string
	hook := func(name string) func(context.Context) { return func(context.Context) { ran = append(ran, name) } }
	require.Error(t, one.Atomically(t.Context(), func(ctx context.Context) error {
		require.NoError(t, persistence.AfterCommit(ctx, hook("outer")))
		require.NoError(t, two.Atomically(ctx, func(ctx context.Context) error {
			return persistence.AfterCommit(ctx, hook("inner"))
		}))
		require.Equal(t, []string{"inner"}, ran)
		return errors.New("roll back")
	}))
	require.Equal(t, []string{"inner"}, ran)
}

func TestErrorsSayWhatIsWrong(t *testing.T) {
	one, two := memstore.New(), memstore.New()
	require.ErrorContains(t, one.Append(t.Context(), valid("a")), "inside Atomically")
	var leaked context.Context
	require.NoError(t, two.Atomically(t.Context(), func(ctx context.Context) error {
		leaked = ctx
		require.ErrorContains(t, one.Append(ctx, valid("a")), "belongs to another database")
		return nil
	}))
	require.ErrorContains(t, two.Append(leaked, valid("a")), "has ended")
	require.ErrorContains(t, two.Atomically(t.Context(), func(ctx context.Context) error {
		require.NoError(t, two.Abort(ctx, memstore.ErrDeadlock))
		require.ErrorContains(t, two.Append(ctx, valid("a")), "cannot commit any more: memstore: deadlock")
		return nil
	}), "nothing is committed")
}

func TestEveryHookRunsThoughOnePanics(t *testing.T) {
	store := memstore.New()
	ran := 0
	require.PanicsWithValue(t, "hook", func() {
		_ = store.Atomically(t.Context(), func(ctx context.Context) error {
			require.ErrorIs(t, persistence.AfterCommit(ctx, nil), persistence.ErrInvalid)
			require.NoError(t, persistence.AfterCommit(ctx, func(context.Context) { ran++; panic("hook") }))
			require.NoError(t, persistence.AfterCommit(ctx, func(context.Context) { ran++ }))
			return store.Append(ctx, valid("a"))
		})
	})
	require.Equal(t, 2, ran)
	records, err := store.ReadAfter(t.Context(), persistence.Cursor{}, 1)
	require.NoError(t, err)
	require.Len(t, records, 1, "the transaction has committed")
}

func TestHooksRunWhateverTheOneBeforeDoes(t *testing.T) {
	store := memstore.New()
	var ran []string
	hook := func(name string, then func()) func(context.Context) {
		return func(context.Context) { ran = append(ran, name); then() }
	}
	var ended sync.WaitGroup
	ended.Go(func() {
		_ = store.Atomically(t.Context(), func(ctx context.Context) error {
			require.NoError(t, persistence.AfterCommit(ctx, hook("exits", runtime.Goexit)))
			require.NoError(t, persistence.AfterCommit(ctx, hook("exits, too", runtime.Goexit)))
			require.NoError(t, persistence.AfterCommit(ctx, hook("last", func() {})))
			return store.Append(ctx, valid("a"))
		})
		t.Error("the goroutine has not ended")
	})
	ended.Wait()
	require.Equal(t, []string{"exits", "exits, too", "last"}, ran)
}

func TestAContextOfAnEndedSavepointIsNotFreeWhileItsTransactionIsOpen(t *testing.T) {
	store := memstore.New()
	var leaked context.Context
	require.NoError(t, store.Atomically(t.Context(), func(ctx context.Context) error {
		require.NoError(t, store.Atomically(ctx, func(ctx context.Context) error { leaked = ctx; return nil }))
		require.ErrorIs(t, store.Atomically(leaked, func(context.Context) error { t.Error("ran"); return nil }), persistence.ErrNoTransaction)
		require.True(t, persistence.InTransaction(leaked))
		require.True(t, persistence.Holds(leaked, store))
		require.False(t, persistence.Holds(leaked, t))
		return nil
	}))
	require.False(t, persistence.InTransaction(leaked))
	require.NoError(t, store.Atomically(leaked, func(context.Context) error { return nil }))
}
