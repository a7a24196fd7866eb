package persistence

import (
	"context"
	"time"
)

// DeadLetter is a full copy of an event that a handler has given up on.
type DeadLetter struct {
	Record     Record
	Dispatcher string
	Handler    string
	Attempts   int
	// LastError is valid UTF-8 without NUL, at most [MaxErrorBytes].
	LastError string
	State     DeadLetterState
	// DeadTime is when the letter was written, by the database's clock, in
	// whole microseconds, UTC. AddDeadLetter does not read it.
	DeadTime time.Time
}

// Marker returns the marker of the letter's event and handler, which is also
// the letter's key.
func (l DeadLetter) Marker() Marker {
	return Marker{Event: l.Record.Cursor(), Handler: l.Handler}
}

// DeadLetterState says what has become of a dead letter.
type DeadLetterState string

const (
	// DeadLetterDead waits for an operator.
	DeadLetterDead DeadLetterState = "dead"
	// DeadLetterRequeued waits for the dispatcher to apply it again.
	DeadLetterRequeued DeadLetterState = "requeued"
	// DeadLetterReplayed has been applied.
	DeadLetterReplayed DeadLetterState = "replayed"
	// DeadLetterDiscarded will not be applied.
	DeadLetterDiscarded DeadLetterState = "discarded"
)

// DeadLetterStore is the dead letters, once they are written. Implementations
// are safe for concurrent use. All methods but MoveDeadLetter work outside of
// any transaction that ctx carries.
type DeadLetterStore interface {
	// ListDeadLetters returns letters in the order of event, then handler.
	ListDeadLetters(ctx context.Context, query DeadLetterQuery) ([]DeadLetter, error)

	// GetDeadLetter returns a letter, or [ErrNotFound].
	GetDeadLetter(ctx context.Context, letter Marker) (DeadLetter, error)

	// MoveDeadLetter moves a letter from one state to another, in the
	// transaction that ctx carries. It returns [ErrNoTransaction] without one,
	// and [ErrNotFound], with nothing written, if no such letter is in the state
	// From. Of two racing calls the second waits until the first has committed
	// or rolled back, so that one of them wins.
	MoveDeadLetter(ctx context.Context, move DeadLetterMove) error

	// PurgeDeadLetters deletes up to limit letters that were written before
	// the time and neither wait for an operator nor for the dispatcher, and
	// returns how many.
	PurgeDeadLetters(ctx context.Context, before time.Time, limit int) (int, error)
}

// DeadLetterMove is a change of a letter's state, and what is noted with it.
type DeadLetterMove struct {
	Letter   Marker
	From, To DeadLetterState // which may be the same
	// Attempts is how many attempts are added; below 0 they are taken back.
	Attempts int
	// LastError replaces that of the letter unless it is empty: valid UTF-8
	// without NUL, at most [MaxErrorBytes].
	LastError string
}

// DeadLetterQuery selects dead letters. Empty fields select all.
type DeadLetterQuery struct {
	State         DeadLetterState
	Dispatcher    string
	Handler       string
	EventID       string
	EventType     string
	AccountID     string
	AggregateType string
	AggregateID   string
	// After is the last letter of the page before.
	After Marker
	// WithoutPayload leaves payloads out, which may be large.
	WithoutPayload bool
	// Limit is the greatest number of letters; it is at least 1.
	Limit int
}
