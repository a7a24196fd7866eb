package events

import (
	"sync"
	"time"

	"github.com/onward-go/outbox/persistence"
)

// amount is a number of events of one bucket, and the sum of their stamps' offsets.
type amount struct {
	rows    int64
	offsets persistence.Offsets
}

func amountOf(b persistence.Bucket) amount { return amount{b.Rows, b.Offsets} }

func (a amount) plus(b amount) amount {
	return amount{a.rows + b.rows, persistence.Offsets{Micros: a.offsets.Micros + b.offsets.Micros, Rows: a.offsets.Rows + b.offsets.Rows}}
}

func (a amount) minus(b amount) amount {
	return amount{a.rows - b.rows, persistence.Offsets{Micros: a.offsets.Micros - b.offsets.Micros, Rows: a.offsets.Rows - b.offsets.Rows}}
}

func (a *amount) add(at time.Time) {
	a.rows++
	a.offsets.Add(at)
}

// agrees reports whether these may be the events that the table holds. Where the
// offsets are not known of all of them, a surplus alone says no.
func (a amount) agrees(table amount) bool {
	if a.offsets.Rows != a.rows {
		return table.rows <= a.rows
	}
	return a == table
}

// tally counts the events that the cursor has passed, by the bucket of their
// stamps, for the audit to compare with what the table holds. It is safe for
// concurrent use.
type tally struct {
	mu       sync.Mutex
	low      persistence.Cursor   // what is at or before it has been counted
	from     time.Time            // buckets that begin before it are not counted in full
	counts   map[time.Time]amount // those that have changed in this term
	unsaved  map[time.Time]bool   // those of them that are to be saved
	own      time.Time            // the bucket whose count is saved with the cursor
	late     map[time.Time]amount // events that an audit has found, and that are not settled
	lowest   time.Time            // the database's clock, when it was behind the cursor
	isBehind bool                 // it is
	behind   signal               // told when it falls behind
}

// newTally goes on where the sidecar left off.
func newTally(state persistence.State) *tally {
	own := persistence.BucketStart(state.Cursor.CreatedTime)
	return &tally{low: state.Cursor, from: state.CountedFrom, counts: map[time.Time]amount{own: {state.Count, state.Offsets}},
		unsaved: map[time.Time]bool{}, own: own, late: map[time.Time]amount{}, behind: newSignal()}
}

// pass counts events that the cursor has passed. Up to resumed they have been
// counted in a former term.
func (t *tally) pass(passed []*entry, resumed persistence.Cursor) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range passed {
		if c := e.at; c.Compare(resumed) > 0 {
			t.low = c
			var one amount
			one.add(c.CreatedTime)
			t.count(persistence.BucketStart(c.CreatedTime), one)
		}
	}
}

func (t *tally) count(bucket time.Time, more amount) {
	t.counts[bucket] = t.counts[bucket].plus(more)
	t.unsaved[bucket] = true
}

// position returns what has been counted: from a time, up to a cursor, and so much in
// the cursor's own bucket, which goes on growing.
func (t *tally) position() (from time.Time, low persistence.Cursor, own amount) {
	t.mu.Lock()
	defer t.mu.Unlock()
	bucket := persistence.BucketStart(t.low.CreatedTime)
	return t.from, t.low, t.counts[bucket].plus(t.late[bucket])
}

// expected returns how many events of a bucket are known, given what the sidecar
// knew before this term changed it.
func (t *tally) expected(bucket time.Time, stored amount) amount {
	t.mu.Lock()
	defer t.mu.Unlock()
	if counted, changed := t.counts[bucket]; changed {
		stored = counted
	}
	return stored.plus(t.late[bucket])
}

// finding is what a bucket holds beside what was expected: events that have arrived
// behind the cursor, less those that somebody has deleted.
type finding struct {
	bucket time.Time
	more   amount
	left   int // entries that are not settled
}

// find notes a finding. It is counted once its entries are settled.
func (t *tally) find(f *finding, stored amount) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, changed := t.counts[f.bucket]; !changed {
		t.counts[f.bucket] = stored
	}
	t.late[f.bucket] = t.late[f.bucket].plus(f.more)
	if f.left == 0 {
		t.close(f)
	}
}

// settle notes that one entry of a finding is settled.
func (t *tally) settle(f *finding) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if f.left--; f.left == 0 {
		t.close(f)
	}
}

func (t *tally) close(f *finding) {
	t.late[f.bucket] = t.late[f.bucket].minus(f.more)
	t.count(f.bucket, f.more)
}

// dirty reports whether there are counts to save.
func (t *tally) dirty() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.unsaved) > 0
}

// changes returns the counts that are to be saved: that of the cursor's bucket,
// and those of others.
func (t *tally) changes() (own persistence.Bucket, others []persistence.Bucket) {
	t.mu.Lock()
	defer t.mu.Unlock()
	own = t.bucket(persistence.BucketStart(t.low.CreatedTime))
	for start := range t.unsaved {
		if start != own.Start {
			others = append(others, t.bucket(start))
		}
	}
	// So far it was saved with the cursor.
	if t.own != own.Start && !t.unsaved[t.own] && t.counts[t.own].rows > 0 {
		others = append(others, t.bucket(t.own))
	}
	return own, others
}

func (t *tally) bucket(start time.Time) persistence.Bucket {
	counted := t.counts[start]
	return persistence.Bucket{Start: start, Rows: counted.rows, Offsets: counted.offsets}
}

// saved notes that changes are saved.
func (t *tally) saved(own persistence.Bucket, others []persistence.Bucket) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.own = own.Start
	for _, c := range append(others, own) {
		if t.counts[c.Start] == amountOf(c) {
			delete(t.unsaved, c.Start)
		}
	}
	if len(t.counts) < 2*int(persistence.AuditWindow/persistence.BucketWidth) {
		return
	}
	old := t.low.CreatedTime.Add(-persistence.AuditWindow - time.Hour)
	for bucket := range t.counts {
		if bucket.Before(old) && !t.unsaved[bucket] && t.late[bucket] == (amount{}) {
			delete(t.counts, bucket)
			delete(t.late, bucket)
		}
	}
}

// see compares the database's clock with the cursor.
func (t *tally) see(clock time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	wasBehind := t.isBehind
	t.isBehind = clock.Before(t.low.CreatedTime)
	if !t.isBehind {
		return
	}
	if t.lowest.IsZero() || clock.Before(t.lowest) {
		t.lowest = clock
	}
	if wasBehind {
		return
	}
	t.behind.tell()
}

// setBack returns the lowest time that the clock has shown behind the cursor
// since it was last caught up, and whether it is behind now.
func (t *tally) setBack() (lowest time.Time, isBehind bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lowest, t.isBehind
}

// caughtUp forgets that the clock was behind, unless it is.
func (t *tally) caughtUp() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.isBehind {
		t.lowest = time.Time{}
	}
}
