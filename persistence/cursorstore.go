package persistence

import (
	"context"
	"time"
)

// OutboxCursorStore keeps what a dispatcher has to remember, in sidecar
// tables. One dispatcher name is one cursor and one consumer of the outbox.
// Implementations are safe for concurrent use.
//
// Every write carries the [Lease] under which it is made and returns
// [ErrLeaseLost], with nothing written, when the lease's token or its owner is no
// longer that of the row, or the server no longer lives the life in which the lease
// was acquired ([Lease].Incarnation). The statement that writes looks at all three.
// All methods but AddDeadLetter work outside of any transaction that ctx carries. What
// becomes of the dead letters needs no lease, and has its own rules.
type OutboxCursorStore interface {
	SubscriptionStore
	DeadLetterStore

	// Create makes a dispatcher with its cursor at start. One that exists
	// stays as it is. A bad name or position is [ErrInvalid].
	Create(ctx context.Context, dispatcher string, start Cursor) error

	// Load returns the state of a dispatcher, or [ErrNotFound].
	Load(ctx context.Context, dispatcher string) (State, error)

	// Acquire takes the lease of an existing dispatcher for the duration, by
	// the database's clock, or renews it if owner holds it already.
	//
	//   - A lease that another owner holds and that has not expired is
	//     [ErrLeaseHeld]; a dispatcher that does not exist [ErrNotFound]; an
	//     empty owner or a negative duration [ErrInvalid].
	//   - A change of owner raises the token by at least one, also above those
	//     of a dispatcher of the name that has been forgotten: no token is given
	//     twice. A renewal keeps it.
	//   - The token of a dispatcher is 0 until its lease is taken for the first
	//     time.
	//   - The Incarnation of what it returns is that of the server when it has
	//     acquired, or renewed. A holder whose renewal tells another one than its
	//     lease has lost the lease: it acquires and loads anew.
	Acquire(ctx context.Context, dispatcher, owner string, duration time.Duration) (Lease, error)

	// Release gives the lease up, so that another owner need not wait for its
	// expiry.
	Release(ctx context.Context, lease Lease) error

	// Save moves the cursor, and writes whatever else progress says before it, so
	// that it need not lock the lease from one statement to the next: a crash
	// between them leaves a cursor from where all is done again. A position
	// behind the stored one leaves the cursor where it is and is no error: the
	// cursor never moves backwards. To save the same progress twice is to save
	// it once.
	Save(ctx context.Context, lease Lease, progress Progress) error

	// Counts returns what [Progress].Counts has saved for the buckets that
	// begin from from, inclusive, to to, exclusive, in order.
	Counts(ctx context.Context, dispatcher string, from, to time.Time) ([]Bucket, error)

	// RecordFailure counts one more failure of a handler on an event.
	RecordFailure(ctx context.Context, lease Lease, failure Failure) (Attempt, error)

	// AddDeadLetter writes the letter in the transaction that ctx carries, the
	// one that also writes the marker which settles the event for the handler.
	// Without one it returns [ErrNoTransaction]. A letter of the same event
	// and handler that exists already stays as it is.
	AddDeadLetter(ctx context.Context, lease Lease, letter DeadLetter) error
}

// State is what [OutboxCursorStore.Load] returns.
type State struct {
	// Lease is the lease as it stands, held or not. A write under it succeeds
	// until somebody takes the lease.
	Lease Lease
	// Cursor is the position of the last settled event: every event at or
	// before it has been applied or dead-lettered.
	Cursor Cursor
	// Count is the number of events at or before Cursor in its own bucket.
	Count int64
	// Offsets is what is known of the stamps of these events.
	Offsets Offsets
	// CountedFrom is the time from which on all settled events are counted: the
	// beginning of the first bucket after the position at which the dispatcher
	// was created, or to which it was rewound.
	CountedFrom time.Time
	// Attempts are the failures of events that are not settled, in order, at
	// most [MaxLoadedAttempts].
	Attempts []Attempt
}

// MaxLoadedAttempts bounds [State.Attempts].
const MaxLoadedAttempts = 10_000

// Lease is the right to work for a dispatcher. Its token is a fencing token
// (M. Kleppmann, "How to do distributed locking", 2016): it rises whenever the
// owner changes, so that a write of a former owner can be told and refused.
type Lease struct {
	Dispatcher string
	Owner      string // empty: nobody
	Token      int64
	// ExpiresTime is when the lease ends, by the database's clock. It is zero
	// for a lease that nobody holds.
	ExpiresTime time.Time
	// Unclean says that the former owner let its lease expire instead of
	// releasing it.
	Unclean bool
	// Incarnation names the life of the server in which the lease was acquired or
	// loaded. A life begins when the server is started, or has recovered from a
	// crash; no two lives, and no two servers, have the same name. What a holder has
	// seen committed may be missing in another life: the crash took it back, or the
	// replica that was promoted lacked it. It is empty where no process outlives a
	// loss of the store's data.
	Incarnation string
}

type leaseKey struct{}

// WithLease returns a context in which handlers of the lease's holder run.
func WithLease(ctx context.Context, lease Lease) context.Context {
	return context.WithValue(ctx, leaseKey{}, lease)
}

// LeaseOf returns the lease for whose holder a handler runs with ctx, for authors of
// an [IdempotencyStore]; found is false where there is none.
func LeaseOf(ctx context.Context) (lease Lease, found bool) {
	lease, found = ctx.Value(leaseKey{}).(Lease)
	return lease, found
}

// Progress is what [OutboxCursorStore.Save] writes.
type Progress struct {
	// Cursor is where everything at or before it is settled.
	Cursor Cursor
	// Count is the number of events at or before Cursor in its own bucket. It is
	// of no account when the stored cursor is ahead.
	Count int64
	// Offsets are of the same events, as far as they have been added up.
	Offsets Offsets
	// CaughtUp are subscriptions that were behind and have come to Cursor. They
	// are behind from there, or not any more once it is the dispatcher's.
	CaughtUp []Subscription
	// Counts are the numbers of settled events of other buckets, behind that of
	// Cursor, among them the one that the cursor leaves. They replace those
	// saved before.
	Counts []Bucket
	// Settled are deliveries that had failed before. Their failures are
	// forgotten.
	Settled []Marker
}

// Failure is one failed try of a handler on an event.
type Failure struct {
	Event   Cursor
	Handler string
	// Error is what went wrong: valid UTF-8 without NUL, at most
	// [MaxErrorBytes].
	Error string
	// RetryAfter is how long to wait before the next try; at least 0.
	RetryAfter time.Duration
	// Counted says that this failure has been counted already, so that only
	// Error and RetryAfter are new.
	Counted bool
	// TakeBack says that the failure that was counted last was none: the
	// process has not ended, as was feared. It wins over Counted.
	TakeBack bool
}

// Number returns by how much the failure changes their count, for authors of
// stores.
func (f Failure) Number() int {
	switch {
	case f.TakeBack:
		return -1
	case f.Counted:
		return 0
	}
	return 1
}

// Attempt is what is known of a handler's failures on an event.
type Attempt struct {
	Event     Cursor `json:"event"`
	Handler   string `json:"handler"`
	Attempts  int    `json:"attempts"` // failures so far
	LastError string `json:"last_error"`
	// NextTime is when to try again, by the database's clock.
	NextTime time.Time `json:"next_time"`
}

// CursorAdmin is the operator's view of the cursors. Its methods work outside
// of any transaction that ctx carries.
type CursorAdmin interface {
	// ListCursors returns the state of every dispatcher, by name, without
	// attempts.
	ListCursors(ctx context.Context) ([]State, error)

	// Rewind moves a dispatcher's cursor, in either direction, and raises the
	// token, so that what its holder still writes is refused. Events that are
	// delivered again take no effect where their markers still exist. What lies
	// at or before the position counts as settled, and is not audited.
	// Subscriptions that start after the position start there from now on. A bad
	// position is [ErrInvalid].
	// It returns [ErrNotFound] for a dispatcher that does not exist.
	Rewind(ctx context.Context, dispatcher string, to Cursor) error

	// Forget deletes a dispatcher's cursor, failures, counts and subscriptions;
	// its dead letters stay. What nobody else reads is then no longer owed to anybody. It
	// returns [ErrNotFound] for a dispatcher that does not exist.
	Forget(ctx context.Context, dispatcher string) error
}
