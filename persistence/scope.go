package persistence

import (
	"context"
	"fmt"
	"sync/atomic"
)

// scope is one call of Atomically: the transaction itself or a savepoint in
// it. It travels in the context, and outlives its usefulness there when a
// caller keeps the context.
type scope struct {
	database   any
	tx         Tx
	parent     *scope // nil for the transaction itself
	joined     bool   // begun elsewhere
	ended      atomic.Bool
	savepoints *atomic.Int64
	hooks      hooks
}

func (s *scope) live() bool {
	for ; s != nil; s = s.parent {
		if s.ended.Load() {
			return false
		}
	}
	return true
}

// scopeKey finds the innermost scope of one database, innermostKey that of
// any.
type scopeKey struct{ database any }
type innermostKey struct{}

func withScope(ctx context.Context, s *scope) context.Context {
	ctx = context.WithValue(ctx, scopeKey{s.database}, s)
	return context.WithValue(ctx, innermostKey{}, s)
}

func liveScope(ctx context.Context, database any) *scope {
	if s, ok := ctx.Value(scopeKey{database}).(*scope); ok && s.live() {
		return s
	}
	return nil
}

// Current returns the live transaction of database that ctx carries, for the
// authors of stores. Otherwise it returns [ErrNoTransaction], wrapped with
// what is wrong.
func Current(ctx context.Context, database any) (Tx, error) {
	s, found := ctx.Value(scopeKey{database}).(*scope)
	if !found {
		if other, ok := ctx.Value(innermostKey{}).(*scope); ok && other.live() {
			return nil, fmt.Errorf("%w: the one in the context belongs to another database", ErrNoTransaction)
		}
		return nil, fmt.Errorf("%w: call it inside Atomically, with the context that Atomically passes on", ErrNoTransaction)
	}
	if !s.live() {
		return nil, fmt.Errorf("%w: the one in the context has ended", ErrNoTransaction)
	}
	if err := s.tx.Err(); err != nil {
		return nil, fmt.Errorf("%w: the server has ended it by itself: %w", ErrNoTransaction, err)
	}
	return s.tx, nil
}

// Innermost returns the handle of the innermost live transaction in ctx, of
// whatever database, or nil.
func Innermost(ctx context.Context) Tx {
	if s, ok := ctx.Value(innermostKey{}).(*scope); ok && s.live() {
		return s.tx
	}
	return nil
}

// Join returns a context that carries tx, a transaction of database which
// somebody else began and will end. Atomically makes savepoints in it, Append
// writes through it, [AfterCommit] returns [ErrCommitNotObserved].
//
// Nobody tells the context when such a transaction ends: Err of tx, or the
// server, has to.
func Join(ctx context.Context, database any, tx Tx) context.Context {
	return withScope(ctx, &scope{database: database, tx: tx, joined: true, savepoints: new(atomic.Int64)})
}

// Detach returns a context with the values, deadline and cancellation of ctx,
// but without its transactions.
func Detach(ctx context.Context) context.Context { return detached{ctx} }

type detached struct{ context.Context }

func (d detached) Value(key any) any {
	switch key.(type) {
	case scopeKey, innermostKey:
		return nil
	}
	return d.Context.Value(key)
}
