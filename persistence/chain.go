package persistence

import (
	"context"
	"fmt"
)

// Chainer is what a [Transactor] may implement, too, to save a round trip where
// one transaction follows another.
type Chainer interface {
	// Chain returns a chain of transactions, with none as yet, that run as those of
	// Atomically do. Of is the transactor whose they are to be: it is nil unless that
	// is the receiver itself. Who embeds a transactor, and has an Atomically of his
	// own, is not passed by then.
	Chain(of Transactor) Chain
}

// Chain runs transactions one after the other. Each may wait, before its COMMIT is
// sent, for the next one to begin, so that both go to the server together. It is
// used by one goroutine at a time, which calls Flush before it does anything else
// than the next transaction: until then, what the last one has written is neither
// durable nor visible, and its locks are held.
type Chain interface {
	// Atomically is that of [Transactor], but that it may return before the COMMIT:
	// held says so, and committed is told later what became of it, by the next
	// Atomically or Flush. Until then nobody knows whether the transaction commits.
	//
	// The transaction before has ended when Atomically returns; its committed is
	// told before the first statement of fn returns. If it did not commit, that
	// statement fails, and so must fn. A transaction with something to do after the
	// commit ([AfterCommit]) is not held. Ctx must carry no transaction of the
	// database ([ErrInTransaction]).
	Atomically(ctx context.Context, fn func(context.Context) error, committed func(error)) (held bool, err error)

	// Flush commits the transaction that is held, if any.
	Flush()
}

// Following is what a [Tx] may implement, too, to commit in the round trip in
// which the next transaction begins.
type Following interface {
	Tx

	// Hold reports whether another transaction can follow on the connection. If
	// so, nothing but Commit, Rollback and Follow is called any more.
	Hold() bool

	// Follow returns the transaction that follows on the connection. Its first
	// statement goes to the server together with the COMMIT of this one, and is
	// not run if that fails. Committed is told what became of the COMMIT before
	// that statement returns, or, where there is none, before the following
	// transaction has ended.
	Follow(committed func(error)) Tx
}

// chain is the protocol of [Chain].
type chain struct {
	database any
	begin    func(context.Context) (Tx, error)
	held     Following
	ctx      context.Context // of held
	told     func(error)     // what became of it
}

// NewChain returns a chain for authors of a Transactor. The arguments are those
// of [Atomically]. What is held is a [Following] that says so; other transactions
// end by themselves.
func NewChain(database any, begin func(context.Context) (Tx, error)) Chain {
	return &chain{database: database, begin: begin}
}

// Atomically implements Chain.
func (c *chain) Atomically(ctx context.Context, fn func(context.Context) error, committed func(error)) (held bool, err error) {
	s, err := c.next(ctx, fn)
	if err != nil {
		c.Flush()
		return false, err
	}
	if err := s.run(ctx, fn, s.tx.Rollback); err != nil {
		return false, err
	}
	if tx, ok := s.tx.(Following); ok && s.hooks.none() && tx.Hold() {
		c.held, c.ctx, c.told = tx, ctx, committed
		return true, nil
	}
	return false, s.commit(ctx)
}

// next begins the next transaction, with the last one or without.
func (c *chain) next(ctx context.Context, fn func(context.Context) error) (*scope, error) {
	switch {
	case fn == nil:
		return nil, fmt.Errorf("atomically: %w: the function is nil", ErrInvalid)
	case Holds(ctx, c.database):
		return nil, fmt.Errorf("atomically: %w: a chain begins none inside of another one", ErrInTransaction)
	}
	if before := c.held; before != nil && ctx.Err() == nil {
		told := c.told
		c.held, c.ctx, c.told = nil, nil, nil
		return &scope{database: c.database, tx: before.Follow(func(err error) { told(commitError(err)) })}, nil
	}
	return open(ctx, c.database, c.begin)
}

// Flush implements Chain.
func (c *chain) Flush() {
	if held := c.held; held != nil {
		ctx, told := c.ctx, c.told
		c.held, c.ctx, c.told = nil, nil, nil
		told((&scope{tx: held}).commit(ctx))
	}
}
