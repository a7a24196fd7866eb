package persistence

import (
	"context"
	"fmt"
	"sync"
)

// AfterCommit registers fn to run once the outermost transaction that ctx
// carries has committed, before Atomically returns. Hooks run in the order of
// their registration, on the goroutine that called Atomically, with its
// context: without a transaction, possibly cancelled.
//
// A rollback forgets the hook, that of a savepoint the hooks registered since.
// It returns [ErrNoTransaction] without a live transaction, and
// [ErrCommitNotObserved] in one that was begun elsewhere ([Join]).
func AfterCommit(ctx context.Context, fn func(ctx context.Context)) error {
	s, ok := ctx.Value(innermostKey{}).(*scope)
	switch {
	case !ok || !s.live():
		return fmt.Errorf("after commit: %w", ErrNoTransaction)
	case s.tx.Err() != nil:
		return fmt.Errorf("after commit: %w: the server has ended it by itself: %w", ErrNoTransaction, s.tx.Err())
	}
	for root := s; root != nil; root = root.parent {
		if root.joined {
			return fmt.Errorf("after commit: %w", ErrCommitNotObserved)
		}
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

func (h *hooks) run(ctx context.Context) {
	h.mu.Lock()
	fns := h.fns
	h.mu.Unlock()
	for _, fn := range fns {
		fn(ctx)
	}
}
