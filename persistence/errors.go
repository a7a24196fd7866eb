package persistence

import "errors"

var (
	// ErrNoTransaction says that the context carries no live transaction of
	// the store's database: none was begun, it has ended, the server has ended
	// it by itself, or it belongs to another database. Nothing was written.
	ErrNoTransaction = errors.New("no transaction")

	// ErrInTransaction says that the context carries a live transaction where
	// the call must not run inside one: the dispatcher, whose handlers have
	// transactions of their own, and everything that issues DDL.
	ErrInTransaction = errors.New("inside a transaction")

	// ErrCommitNotObserved is returned by [AfterCommit] inside a transaction
	// that was begun elsewhere and enlisted with [Join]: nobody here learns
	// whether it commits, so the hook would never run.
	ErrCommitNotObserved = errors.New("the transaction was begun elsewhere, its commit cannot be observed")

	// ErrInvalid marks bad input: a field, an option or a subscription. The
	// message names each field and its limit. Nothing was written.
	ErrInvalid = errors.New("invalid")

	// ErrDuplicate says that an account has used an event's dedup key already,
	// in a transaction that has committed or earlier in this one. Nothing was
	// written, and the transaction is usable: what the event tells of has
	// happened before.
	ErrDuplicate = errors.New("the dedup key is taken")

	// ErrApplied says that a marker exists already, of a transaction that has
	// committed, or from earlier in this one. The transaction may be of no use any
	// more: roll it back.
	ErrApplied = errors.New("already applied")

	// ErrSchema says that the outbox tables are missing, or older or newer
	// than this version of the library.
	ErrSchema = errors.New("outbox schema")

	// ErrUnsupported says that the database server, as it is or as it is set
	// up, cannot keep the library's promises. The message says what is in the
	// way and what to do. Nothing was written.
	ErrUnsupported = errors.New("unsupported server")

	// ErrPrivilege says that the database user may not do what the store does for
	// one of its roles.
	ErrPrivilege = errors.New("missing privilege")

	// ErrLeaseHeld says that another owner holds the dispatcher's lease.
	ErrLeaseHeld = errors.New("lease held by another owner")

	// ErrLeaseLost says that the lease of a write is stale: another owner has
	// taken it since, an operator has moved the cursor, or the server has been
	// restarted or replaced. Nothing was written.
	ErrLeaseLost = errors.New("lease lost")

	// ErrNotFound says that the named cursor or dead letter does not exist, or
	// is not in the state that the call asks for.
	ErrNotFound = errors.New("not found")

	// ErrOwed says that retention has kept events which some dispatcher has
	// not settled. The message names it.
	ErrOwed = errors.New("owed to a dispatcher")

	// ErrLockTimeout says that other sessions have kept a table locked for
	// longer than retention makes anybody wait. It may be run again.
	ErrLockTimeout = errors.New("lock timeout")

	// ErrTransient marks what Atomically and [Chain] return for a fault that is not
	// that of what was tried: a lost connection, a deadlock, a serialization failure,
	// a lock timeout, a busy database. The same function may succeed if it is run
	// again. A dispatcher spends no attempt of an event on it.
	ErrTransient = errors.New("transient fault")

	// ErrNotPrimary says that the database answered from a standby, or that
	// two statements of one read were answered by different servers. What
	// producers hold open is not visible there, so reading would lose events.
	ErrNotPrimary = errors.New("not the primary server")
)
