package persistence

import (
	"context"
	"fmt"
	"sync"
)

// AfterCommit registers fn to run once the transaction that ctx carries has
// committed, before Atomically returns. Within savepoints that is the outermost
// one; where transactions of two databases are open, that of the inner database:
// a [CommitObserver] names its own. Hooks run in the order of
// their registration, on the goroutine that called Atomically, with its
// context: without a transaction of that database, possibly cancelled.
//
// A rollback forgets the hook, that of a savepoint the hooks registered since;
// savepoints that Atomically did not make are not seen. If a hook panics, or
// calls [runtime.Goexit], the others still run, and Atomically does not return,
// though the transaction has committed.
//
// It returns [ErrInvalid] for a nil fn, [ErrNoTransaction] without a live
// transaction, and [ErrCommitNotObserved] in one that was begun elsewhere ([Join]).
func AfterCommit(ctx context.Context, fn func(ctx context.Context)) error {
	if fn == nil {
		return fmt.Errorf("after commit: %w: the function is nil", ErrInvalid)
	}
	return innermost(ctx).afterCommit(fn)
}

// CommitObserver is what an [OutboxStore] may implement, too, so that a publisher
// is told of the commit of the store's own transaction also where ctx carries those
// of other databases.
type CommitObserver interface {
	// AfterCommit is as the function of that name, for the transaction of this
	// store's database that ctx carries.
	AfterCommit(ctx context.Context, fn func(ctx context.Context)) error
}

// AfterCommitOf is [AfterCommit] for the transaction of one database, whatever
// others ctx carries. It is for authors of a [CommitObserver]; database is that of
// [Atomically].
func AfterCommitOf(ctx context.Context, database any, fn func(ctx context.Context)) error {
	if fn == nil {
		return fmt.Errorf("after commit: %w: the function is nil", ErrInvalid)
	}
	return innermostOf(ctx, database).afterCommit(fn)
}

func (s *scope) afterCommit(fn func(context.Context)) error {
	if s == nil || !s.live() {
		return fmt.Errorf("after commit: %w", ErrNoTransaction)
	}
	if err := s.err(); err != nil {
		return fmt.Errorf("after commit: %w: it cannot commit any more: %w", ErrNoTransaction, err)
	}
	if s.root().joined {
		return fmt.Errorf("after commit: %w", ErrCommitNotObserved)
	}
	s.hooks.add(fn)
	return nil
}

// hooks is a list of functions to run after a commit. The lock lets a handler
// register from a goroutine of its own while it waits for it.
type hooks struct {
	mu  sync.Mutex
	fns []func(context.Context)
}

func (h *hooks) add(fn func(context.Context)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fns = append(h.fns, fn)
}

// take moves the hooks of a released savepoint to the enclosing scope.
func (h *hooks) take(inner *hooks) {
	inner.mu.Lock()
	fns := inner.fns
	inner.fns = nil
	inner.mu.Unlock()

	h.mu.Lock()
	defer h.mu.Unlock()
	h.fns = append(h.fns, fns...)
}

func (h *hooks) none() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.fns) == 0
}

func (h *hooks) run(ctx context.Context) {
	h.mu.Lock()
	fns := h.fns
	h.mu.Unlock()
	runHooks(ctx, fns)
}

// runHooks runs the first hook, and then the others, however the first one ends.
func runHooks(ctx context.Context, fns []func(context.Context)) {
	if len(fns) == 0 {
		return
	}
	defer runHooks(ctx, fns[1:])
	fns[0](ctx)
}
