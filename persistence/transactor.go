package persistence

import "context"

// Transactor runs functions in transactions. Implementations are safe for
// concurrent use.
type Transactor interface {
	// Atomically runs fn in a transaction carried by the context that fn
	// receives. Stores of the same database take part in it when they are
	// called with that context.
	//
	//   - The transaction commits if and only if fn returns nil and ctx is not
	//     cancelled by then. Atomically returns nil only after the commit.
	//   - If fn returns an error, panics or calls [runtime.Goexit], everything
	//     it wrote is rolled back. A panic goes on.
	//   - A failed commit is an error.
	//   - Inside a live transaction of the same database, Atomically makes a
	//     savepoint instead: an error of the inner fn takes back the inner
	//     writes only, also when the outer fn swallows it.
	//   - When the server has ended the transaction by itself, every further
	//     use fails, and Atomically returns an error even if fn returned nil.
	//   - Once Atomically has returned, the context given to fn counts as one
	//     without a transaction ([ErrNoTransaction]).
	//
	// An error that is not the fault of fn matches [ErrTransient], also where it is
	// one of fn's that wraps the driver's, and whoever wraps the transactor passes it
	// on so.
	//
	// One transaction must not be used by several goroutines at once.
	Atomically(ctx context.Context, fn func(ctx context.Context) error) error
}

// FaultJudge is what a [Transactor] may implement, too, to tell errors that are
// not the fault of what was tried, also those that it has not returned itself. What
// Atomically has returned matches [ErrTransient] then.
type FaultJudge interface {
	// IsTransient reports whether the same function may succeed if it is run
	// again: a lost connection, a deadlock, a serialization failure, a lock
	// timeout, a busy database.
	IsTransient(err error) bool
}

// TransactionLimit is what a [Transactor] may implement, too, to tell how many
// of its transactions can be open at once, so that nobody waits in vain.
type TransactionLimit interface {
	// MaxTransactions returns the limit; 0 is none.
	MaxTransactions() int
}
