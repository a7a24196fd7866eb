package persistence

import (
	"context"
	"fmt"
)

// OutboxInspector is what an [OutboxStore] may implement, too, for operators who
// ask what has become of an event. Its methods read what is committed, wait for
// no safe mark, and work outside of any transaction that ctx carries.
// Implementations are safe for concurrent use.
type OutboxInspector interface {
	// FindRecords looks at the committed records of a range, in the order of
	// positions or against it, and returns those that the query selects.
	//
	//   - It looks at MostRows records at most, however many there are: there is
	//     no index but that of positions. [RecordPage] says whether there is more.
	//   - A Limit or MostRows below 1 is [ErrInvalid].
	FindRecords(ctx context.Context, query RecordQuery) (RecordPage, error)

	// AppliedHandlers returns the handlers whose markers of the event are
	// committed, by name: those that were applied, and those that have given up
	// and left a dead letter.
	AppliedHandlers(ctx context.Context, event Cursor) ([]string, error)

	// Failures returns what a dispatcher remembers of failures on an event that
	// is not settled, by handler.
	Failures(ctx context.Context, dispatcher string, event Cursor) ([]Attempt, error)
}

// RecordQuery selects records. Empty fields select all.
type RecordQuery struct {
	// After and Before are the ends of the range, which do not belong to it. A
	// zero Before is no end.
	After, Before Cursor

	ID            string
	EventType     string
	AccountID     string
	AggregateType string
	AggregateID   string

	// Backwards looks from Before to After.
	Backwards bool
	// WithoutPayload leaves payloads out, which may be large.
	WithoutPayload bool
	// Limit is the greatest number of records returned, MostRows of those looked
	// at; each is at least 1.
	Limit, MostRows int
}

// Check returns an [ErrInvalid] error unless the query has its limits.
func (q RecordQuery) Check() error {
	if err := CheckLimit(q.Limit); err != nil {
		return err
	}
	if q.MostRows < 1 {
		return fmt.Errorf("%w: %d records are to be looked at, it must be at least 1", ErrInvalid, q.MostRows)
	}
	return nil
}

// Selects reports whether the query selects a record of its range.
func (q RecordQuery) Selects(r Record) bool {
	selects := func(want, got string) bool { return want == "" || want == got }
	return selects(q.ID, r.ID) && selects(q.EventType, r.EventType) && selects(q.AccountID, r.AccountID) &&
		selects(q.AggregateType, r.AggregateType) && selects(q.AggregateID, r.AggregateID)
}

// Unfiltered reports whether the query selects all records of its range.
func (q RecordQuery) Unfiltered() bool {
	return q.ID == "" && q.EventType == "" && q.AccountID == "" && q.AggregateType == "" && q.AggregateID == ""
}

// RecordPage is an answer of [OutboxInspector.FindRecords].
type RecordPage struct {
	// Records are in the order in which they were looked at.
	Records []Record
	// Looked is how many records were looked at.
	Looked int
	// More says that there may be more records in the range, which lie beyond
	// Next: the After of the next query, or its Before if it looks backwards.
	More bool
	Next Cursor
}
