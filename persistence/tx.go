package persistence

import (
	"context"
	"errors"
	"fmt"
)

// Tx is a backend's handle on one open transaction. It is what an author of a
// [Transactor] implements; [Atomically] drives it. All methods but Err are
// called from one goroutine at a time.
type Tx interface {
	// Commit makes the writes durable and visible. An error means that they
	// are not, or that nobody can tell. Rollback is still called after it.
	Commit(ctx context.Context) error

	// Rollback takes all writes back. It is given a context that is not
	// cancelled, and is harmless on a transaction that has already ended.
	Rollback(ctx context.Context) error

	// Savepoint marks a point to return to. Name is a plain identifier, unique
	// within the transaction.
	Savepoint(ctx context.Context, name string) error

	// RollbackTo takes back what was written since the savepoint and forgets
	// the savepoint.
	RollbackTo(ctx context.Context, name string) error

	// Release forgets the savepoint and keeps what was written since.
	Release(ctx context.Context, name string) error

	// Err returns nil while the transaction can still commit, and the cause
	// once the server has ended it by itself.
	Err() error
}

// Atomically is the protocol of [Transactor.Atomically], for authors of a
// Transactor. Database identifies the database: it is any comparable value,
// such as a pool's pointer, that the backend's stores pass to [Current].
// Begin opens a transaction; it is not called when ctx already carries a live
// one of the same database, where a savepoint takes its place.
func Atomically(ctx context.Context, database any, begin func(context.Context) (Tx, error), fn func(context.Context) error) error {
	if fn == nil {
		return fmt.Errorf("atomically: %w: the function is nil", ErrInvalid)
	}
	if outer := liveScope(ctx, database); outer != nil {
		if err := outer.err(); err != nil {
			return fmt.Errorf("%w: it cannot commit any more: %w", ErrNoTransaction, err)
		}
		return nested(ctx, outer, fn)
	}
	if Holds(ctx, database) {
		return fmt.Errorf("%w: the savepoint in the context has ended, though its transaction is open", ErrNoTransaction)
	}
	s, err := open(ctx, database, begin)
	if err != nil {
		return err
	}
	if err := s.run(ctx, fn, s.tx.Rollback); err != nil {
		return err
	}
	return s.commit(ctx)
}

// open opens a transaction.
func open(ctx context.Context, database any, begin func(context.Context) (Tx, error)) (*scope, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("begin transaction: %w", context.Cause(ctx))
	}
	tx, err := begin(ctx)
	if err != nil {
		return nil, fmt.Errorf("begin transaction: %w", err)
	}
	return &scope{database: database, tx: tx}, nil
}

// commit ends the transaction of a scope whose function has succeeded.
func (s *scope) commit(ctx context.Context) error {
	// The outcome of a COMMIT that is cut off half-way is unknown, so a
	// cancellation that comes now is too late.
	if err := s.tx.Commit(context.WithoutCancel(ctx)); err != nil {
		return errors.Join(commitError(err), s.tx.Rollback(context.WithoutCancel(ctx)))
	}
	s.hooks.run(ctx)
	return nil
}

func commitError(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("commit transaction: %w", err)
}

func nested(ctx context.Context, outer *scope, fn func(context.Context) error) error {
	name := fmt.Sprintf("outbox_%d", outer.root().savepoints.Add(1))
	if err := outer.tx.Savepoint(ctx, name); err != nil {
		return fmt.Errorf("savepoint: %w", err)
	}
	s := &scope{database: outer.database, tx: outer.tx, parent: outer}
	rollback := func(ctx context.Context) error {
		if s.tx.Err() != nil {
			return nil // the savepoint went with its transaction
		}
		err := s.tx.RollbackTo(ctx, name)
		if err != nil {
			s.breakOff(fmt.Errorf("a savepoint could not be rolled back: %w", err))
		}
		return err
	}
	if err := s.run(ctx, fn, rollback); err != nil {
		return err
	}
	if err := s.tx.Release(context.WithoutCancel(ctx), name); err != nil {
		err = fmt.Errorf("release savepoint: %w", err)
		s.breakOff(err)
		return err
	}
	outer.hooks.take(&s.hooks)
	return nil
}

// run calls fn inside the scope and ends the scope. Unless fn succeeded in a
// transaction that can still commit, it rolls back.
func (s *scope) run(ctx context.Context, fn func(context.Context) error, rollback func(context.Context) error) (err error) {
	returned := false
	defer func() {
		s.ended.Store(true)
		if returned && err == nil {
			return
		}
		rollbackErr := rollback(context.WithoutCancel(ctx))
		if returned && rollbackErr != nil {
			err = errors.Join(err, fmt.Errorf("rollback: %w", rollbackErr))
		}
	}()
	err = fn(withScope(ctx, s))
	returned = true
	if err != nil {
		return err
	}
	if cause := s.err(); cause != nil {
		return fmt.Errorf("nothing is committed, the transaction was ended before: %w", cause)
	}
	if ctx.Err() != nil {
		return fmt.Errorf("nothing is committed: %w", context.Cause(ctx))
	}
	return nil
}
