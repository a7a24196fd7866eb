package persistence

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"time"
)

// Record is a row of the outbox table. Its fields are the table's columns.
type Record struct {
	ID            string
	AccountID     string
	AggregateType string
	AggregateID   string
	EventType     string
	Payload       []byte
	CreatedTime   time.Time
}

// Cursor returns the position of the record.
func (r Record) Cursor() Cursor { return Cursor{CreatedTime: r.CreatedTime, ID: r.ID} }

// OutboxStore is the outbox table. Implementations are safe for concurrent
// use.
//
// Rows become visible when their transactions commit, which is not the order
// of their stamps: a transaction can stamp a row, stay open, and commit after
// rows with later stamps have been read. A reader that moves past a row which
// it cannot see yet never delivers it. Each store therefore knows a safe mark:
// no transaction in flight, and none to come, can produce a row before it.
type OutboxStore interface {
	// Append writes records in the transaction that ctx carries.
	//
	//   - Without a live transaction of this store's database it returns
	//     [ErrNoTransaction].
	//   - All records are validated first ([Validate]); if any is refused,
	//     nothing is written, and the error is [ErrInvalid].
	//   - The database stamps the records; CreatedTime is not read. Stamps rise
	//     strictly in the order of the arguments.
	//   - It is one statement and one round trip, whatever the number of
	//     records.
	//   - The store keeps no reference to a payload after it returns.
	Append(ctx context.Context, records ...Record) error

	// ReadAfter returns up to limit committed records after the cursor, in
	// order: by CreatedTime, then by ID compared byte by byte.
	//
	//   - It never returns a record at or above the safe mark, so that a caller
	//     that moves its cursor to the last record returned misses nothing.
	//   - It reads the primary and never takes part in a transaction that ctx
	//     carries.
	//   - A limit below 1 is [ErrInvalid].
	ReadAfter(ctx context.Context, after Cursor, limit int) ([]Record, error)

	// ReadWindow returns a page of committed records without waiting for the
	// safe mark, for readers that remember what they have read and settle
	// duplicates with markers. See [WindowRead] for what is returned.
	//
	//   - All records are of one snapshot: whoever sees an aggregate's later
	//     record sees its earlier ones, too. What a page leaves out of it lies
	//     after all that it returns of the same aggregate.
	//   - A durable cursor may move up to WindowPage.Complete, and not to the
	//     safe mark, taken before this call, or beyond.
	ReadWindow(ctx context.Context, read WindowRead) (WindowPage, error)

	// SafeMark returns the safe mark and the database's clock.
	SafeMark(ctx context.Context) (SafeMark, error)

	// CountRows counts the committed records from from, inclusive, to to,
	// exclusive, in buckets of [BucketWidth]; empty buckets are left out.
	// Rows are never changed or deleted one by one, so a count that exceeds
	// what a reader has read shows that it has missed a row. Where somebody has
	// deleted one all the same, the count may agree; the sum of Offsets does not.
	CountRows(ctx context.Context, from, to time.Time) ([]Bucket, error)
}

// SafeMark is an answer of [OutboxStore.SafeMark].
type SafeMark struct {
	// Time is the mark: records that become visible after the answer have
	// this stamp or a later one.
	Time time.Time
	// Now is the database's clock.
	Now time.Time
	// Holdouts are producers that have been open for a while.
	Holdouts Holdouts
	// Missing says, for people to read, why there is no mark yet: Time is zero
	// then. A store that learns the mark by watching has none beside a producer
	// that has been open since before it began to watch.
	Missing string
}

// Holdouts are transactions that hold a safe mark back, and the mark that there
// would be without them. A store that cannot tell names none.
type Holdouts struct {
	// Transactions are their names. They mean something to the store alone.
	Transactions []string
	// Beyond is the other mark: records that become visible after the answer
	// have this stamp or a later one, or are those of Transactions.
	Beyond time.Time
}

// WindowRead says what [OutboxStore.ReadWindow] returns: the records after the
// cursor After that Known does not report, in order, and of these the first:
// a page. Records up to Frontier are late ones.
//
// A page ends at a position of its snapshot. This keeps the order of an aggregate,
// whose positions rise in the order of its commits: what one snapshot shows of
// it is the beginning of its history, the part of that up to any position is a
// beginning, too, and together with what the reader knows already, another
// beginning, it makes a beginning again. So what a page leaves out may come from
// a later snapshot. It would be another matter to leave late records out, or to
// take them from an earlier snapshot than the new ones: the later event of an
// aggregate could be returned before the earlier one.
type WindowRead struct {
	// After is the durable cursor.
	After Cursor
	// Frontier is the last position that has been read. One before After
	// counts as After.
	Frontier Cursor
	// Known reports whether the caller has the record already. It is called
	// for positions from After to Frontier only; nil knows none.
	Known func(Cursor) bool
	// KnownCount is the number of records that Known reports. A store looks at
	// no more positions than it needs to find LateLimit others among so many; if
	// the number is too low, the page ends sooner.
	KnownCount int
	// Counted lets a store compare a number instead of all those positions: of
	// the records after After, up to Counted, the caller has Count. Since records
	// do not vanish, an equal number is the same ones. A Counted at or before
	// After says nothing.
	Counted Cursor
	Count   int
	// Holdouts lets a store leave out what cannot have changed: as long as they
	// are all open, nothing appears before Holdouts.Beyond, of which Count
	// has CountHeld records. It comes from a [SafeMark] that was asked for before
	// a read whose records the caller knows all. The zero value says nothing.
	Holdouts  Holdouts
	CountHeld int
	// LateLimit is the greatest number of late records, and Limit that of
	// records after Frontier; either is at least 0. A store may return fewer.
	LateLimit int
	Limit     int
	// MaxBytes bounds the payload of the page. The record that exceeds it is
	// still returned, and at least one, so that a reader gets on. Zero is no bound.
	MaxBytes int
	// WithoutPayload leaves the payloads out.
	WithoutPayload bool
}

// WindowPage is what [OutboxStore.ReadWindow] returns.
type WindowPage struct {
	// Records are in order: by CreatedTime, then by ID.
	Records []Record
	// Complete is the end of the page: each record at or before it that the
	// snapshot shows is known to the caller, or among Records.
	Complete Cursor
	// Now is the database's clock.
	Now time.Time
	// More says that the page may have left something out.
	More bool
}

// Check returns an [ErrInvalid] error for a limit below 0, for authors of stores.
func (w WindowRead) Check() error {
	if limit := min(w.Limit, w.LateLimit, w.MaxBytes); limit < 0 {
		return fmt.Errorf("%w: a limit is %d, it must be at least 0", ErrInvalid, limit)
	}
	return nil
}

// Page returns the page that a snapshot makes of the read, for authors of stores
// that hold their records in memory: records yields those after After, in order.
func (w WindowRead) Page(now time.Time, records iter.Seq[Record]) WindowPage {
	page := WindowPage{Complete: w.Edge(), Now: now}
	late, fresh, size := 0, 0, 0
	for r := range records {
		c := r.Cursor()
		isLate := c.Compare(w.Edge()) <= 0
		if isLate && w.Known != nil && w.Known(c) {
			continue
		}
		if isLate && late == w.LateLimit || !isLate && fresh == w.Limit || w.MaxBytes > 0 && size >= w.MaxBytes {
			page.More = true
			if isLate {
				page.Complete = c.Preceding()
			}
			break
		}
		if isLate {
			late++
		} else {
			fresh++
			page.Complete = c
		}
		if w.WithoutPayload {
			r.Payload = nil
		}
		r.Payload = bytes.Clone(r.Payload)
		size += len(r.Payload)
		page.Records = append(page.Records, r)
	}
	return page
}

// Edge returns Frontier, or After if that lies behind.
func (w WindowRead) Edge() Cursor {
	if w.Frontier.Compare(w.After) < 0 {
		return w.After
	}
	return w.Frontier
}

// BucketWidth is the width of a [Bucket]. Buckets begin at multiples of it
// since the Unix epoch.
const BucketWidth = 10 * time.Second

// BucketStart returns the beginning of the bucket in which t lies; the zero time
// for one before the Unix epoch.
func BucketStart(t time.Time) time.Time {
	width := BucketWidth.Microseconds()
	micros := t.UnixMicro()
	if micros < 0 {
		return time.Time{}
	}
	return time.UnixMicro(micros / width * width).UTC()
}

// BucketAfter returns the beginning of the first bucket in which no record lies
// at or before the position; the zero time for a position before the Unix epoch.
func BucketAfter(position Cursor) time.Time {
	after := position.CreatedTime
	if position.ID != "" {
		after = after.Add(time.Microsecond)
	}
	start := BucketStart(after.Add(BucketWidth - time.Microsecond))
	if start.Year() > 9999 { // no database need keep it
		return BucketStart(position.CreatedTime)
	}
	return start
}

// Bucket is a number of records stamped in one interval of [BucketWidth].
type Bucket struct {
	Start time.Time
	Rows  int64
	// Offsets tells the records from others of the same number.
	Offsets Offsets
}

// Offsets is a sum over records of one bucket: of how long after its beginning they
// were stamped. Every database and this process compute it alike, from what both have
// anyway.
type Offsets struct {
	// Micros is the sum, in microseconds.
	Micros int64
	// Rows is the number of records that are summed up. The sum is that of a whole
	// bucket only where this is the bucket's number of rows: a release that did not
	// add up may have counted some of them.
	Rows int64
}

// Add adds a record that was stamped at a time.
func (o *Offsets) Add(at time.Time) {
	o.Micros += at.Sub(BucketStart(at)).Microseconds()
	o.Rows++
}
