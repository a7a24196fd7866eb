package persistence

import (
	"context"
	"time"
)

// Marker says that a handler has been applied to an event. Handler names are
// global to the outbox.
type Marker struct {
	Event   Cursor
	Handler string
}

// Key returns the marker in a form that can be compared by == and be the key of a
// map: two values of time.Time may be of one moment and yet differ.
func (m Marker) Key() Marker {
	m.Event.CreatedTime = m.Event.CreatedTime.UTC().Truncate(time.Microsecond)
	return m
}

// IdempotencyStore keeps the markers that make an effect happen exactly once.
// Implementations are safe for concurrent use.
type IdempotencyStore interface {
	// Record writes markers in the transaction that ctx carries, before the
	// handler runs in it, and reports for each whether it is new: true means
	// apply the handler, false that another transaction has applied it.
	//
	//   - Without a live transaction it returns [ErrNoTransaction], for a marker
	//     without event or handler [ErrInvalid].
	//   - When an open transaction has recorded the same marker, Record waits
	//     for it to end: false if it commits, true if it rolls back.
	//   - A marker that cannot be written, for whatever reason, is an error and
	//     never false: the event would be lost.
	//   - Where the lease in ctx ([LeaseOf]) is of another life of the server
	//     ([Lease].Incarnation), it returns [ErrLeaseLost]: what the aggregate's
	//     earlier event did may be lost, and has to be done before.
	//   - On a rollback the markers are gone.
	//   - Where ctx has a deadline and the database can, the server ends the
	//     transaction by itself if it stands idle past it, so that a process
	//     that is paused does not keep others waiting.
	Record(ctx context.Context, markers ...Marker) ([]bool, error)

	// RecordNew is Record for one marker that is expected to be new, which some
	// databases write for less. It returns [ErrApplied] where Record reports
	// false; the transaction may be of no use then, but to be rolled back.
	RecordNew(ctx context.Context, marker Marker) error

	// Applied reports for each of the markers whether it has been committed.
	// It works outside of any transaction that ctx carries.
	Applied(ctx context.Context, markers ...Marker) ([]bool, error)
}
