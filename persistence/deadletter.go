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

// DeadLetterStore is the operator's view of the dead letters.
type DeadLetterStore interface {
	// ListDeadLetters returns letters in the order of event, then handler. It
	// works outside of any transaction that ctx carries.
	ListDeadLetters(ctx context.Context, query DeadLetterQuery) ([]DeadLetter, error)

	// SetDeadLetterState moves a letter from one state to another, in the
	// transaction that ctx carries. It returns [ErrNoTransaction] without one,
	// and [ErrNotFound] if no such letter is in the state from. Of two racing
	// calls one wins.
	SetDeadLetterState(ctx context.Context, letter Marker, from, to DeadLetterState) error

	// PurgeDeadLetters deletes up to limit letters that were written before
	// the time and neither wait for an operator nor for the dispatcher, and
	// returns how many. It works outside of any transaction that ctx carries.
	PurgeDeadLetters(ctx context.Context, before time.Time, limit int) (int, error)
}

// DeadLetterQuery selects dead letters. Empty fields select all.
type DeadLetterQuery struct {
	State      DeadLetterState
	Dispatcher string
	Handler    string
	// After is the last letter of the page before.
	After Marker
	// Limit is the greatest number of letters; it is at least 1.
	Limit int
}
