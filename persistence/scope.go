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
	around     *scope // the one that the context carried before, of whatever database
	joined     bool   // begun elsewhere
	ended      atomic.Bool
	savepoints atomic.Int64          // of the transaction itself
	broken     atomic.Pointer[error] // of the transaction itself
	hooks      hooks
}

// root returns the scope of the transaction itself.
func (s *scope) root() *scope {
	for s.parent != nil {
		s = s.parent
	}
	return s
}

// breakOff makes sure that the transaction cannot commit: a savepoint could not
// be taken back, so it holds writes that it must not.
func (s *scope) breakOff(cause error) {
	s.root().broken.CompareAndSwap(nil, &cause)
}

// err returns why the transaction cannot commit any more, or nil.
func (s *scope) err() error {
	if cause := s.root().broken.Load(); cause != nil {
		return *cause
	}
	return s.tx.Err()
}

func (s *scope) live() bool {
	for ; s != nil; s = s.parent {
		if s.ended.Load() {
			return false
		}
	}
	return true
}

type scopeKey struct{}

func withScope(ctx context.Context, s *scope) context.Context {
	s.around = innermost(ctx)
	return context.WithValue(ctx, scopeKey{}, s)
}

// innermost returns the innermost scope of any database, or nil.
func innermost(ctx context.Context) *scope {
	s, _ := ctx.Value(scopeKey{}).(*scope)
	return s
}

// innermostOf returns that of one database, or nil.
func innermostOf(ctx context.Context, database any) *scope {
	s := innermost(ctx)
	for s != nil && s.database != database {
		s = s.around
	}
	return s
}

func liveScope(ctx context.Context, database any) *scope {
	if s := innermostOf(ctx, database); s != nil && s.live() {
		return s
	}
	return nil
}

// Current returns the live transaction of database that ctx carries, for the
// authors of stores. Otherwise it returns [ErrNoTransaction], wrapped with
// what is wrong.
func Current(ctx context.Context, database any) (Tx, error) {
	s := innermostOf(ctx, database)
	if s == nil {
		if other := innermost(ctx); other != nil && other.live() {
			return nil, fmt.Errorf("%w: the one in the context belongs to another database", ErrNoTransaction)
		}
		return nil, fmt.Errorf("%w: call it inside Atomically, with the context that Atomically passes on", ErrNoTransaction)
	}
	if !s.live() {
		return nil, fmt.Errorf("%w: the one in the context has ended", ErrNoTransaction)
	}
	if err := s.err(); err != nil {
		return nil, fmt.Errorf("%w: the one in the context cannot commit any more: %w", ErrNoTransaction, err)
	}
	return s.tx, nil
}

// Holds reports whether ctx stems from a transaction of database that is still
// open: the context of Atomically's function itself, or that of a savepoint,
// even one that has ended. Whoever waits there for another connection may wait
// for ever.
func Holds(ctx context.Context, database any) bool {
	return innermostOf(ctx, database).open()
}

// InTransaction reports whether ctx stems from an open transaction of any
// database; see [Holds].
func InTransaction(ctx context.Context) bool {
	return innermost(ctx).open()
}

func (s *scope) open() bool { return s != nil && !s.root().ended.Load() }

// Innermost returns the handle of the innermost live transaction in ctx, of
// whatever database, or nil.
func Innermost(ctx context.Context) Tx {
	if s := innermost(ctx); s != nil && s.live() {
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
	return withScope(ctx, &scope{database: database, tx: tx, joined: true})
}

// Detach returns a context with the values, deadline and cancellation of ctx,
// but without its transactions.
func Detach(ctx context.Context) context.Context { return detached{ctx} }

type detached struct{ context.Context }

func (d detached) Value(key any) any {
	if _, ok := key.(scopeKey); ok {
		return nil
	}
	return d.Context.Value(key)
}
