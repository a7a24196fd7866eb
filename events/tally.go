package events

import (
	"sync"
	"time"

	"github.com/onward-go/outbox/persistence"
)

// tally counts the events that the cursor has passed, by the bucket of their
// stamps, for the audit to compare with what the table holds. It is safe for
// concurrent use.
type tally struct {
	mu       sync.Mutex
	low      persistence.Cursor  // what is at or before it has been counted
	from     time.Time           // buckets that begin before it are not counted in full
	rows     map[time.Time]int64 // counts that have changed in this term
	unsaved  map[time.Time]bool  // those of them that are to be saved
	own      time.Time           // the bucket whose count is saved with the cursor
	late     map[time.Time]int64 // events that an audit has found, and that are not settled
	lowest   time.Time           // the database's clock, when it was behind the cursor
	isBehind bool                // it is
	behind   signal              // told when it falls behind
}

// newTally goes on where the sidecar left off.
func newTally(state persistence.State) *tally {
	own := persistence.BucketStart(state.Cursor.CreatedTime)
	return &tally{low: state.Cursor, from: state.CountedFrom, rows: map[time.Time]int64{own: state.Count}, unsaved: map[time.Time]bool{},
		own: own, late: map[time.Time]int64{}, behind: newSignal()}
}

// pass counts events that the cursor has passed. Up to resumed they have been
// counted in a former term.
func (t *tally) pass(passed []*entry, resumed persistence.Cursor) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range passed {
		if c := e.at; c.Compare(resumed) > 0 {
			t.low = c
			t.count(persistence.BucketStart(c.CreatedTime), 1)
		}
	}
}

func (t *tally) count(bucket time.Time, n int64) {
	t.rows[bucket] += n
	t.unsaved[bucket] = true
}

// position returns what has been counted: from a time, up to a cursor.
func (t *tally) position() (from time.Time, low persistence.Cursor) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.from, t.low
}

// expected returns how many events of a bucket are known, given what the sidecar
// knew before this term changed it.
func (t *tally) expected(bucket time.Time, stored int64) int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if rows, changed := t.rows[bucket]; changed {
		stored = rows
	}
	return stored + t.late[bucket]
}

// finding is a number of events of one bucket that have arrived behind the
// cursor.
type finding struct {
	bucket time.Time
	missed int64
	left   int // entries that are not settled
}

// find notes a finding. It is counted once its entries are settled.
func (t *tally) find(f *finding, stored int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, changed := t.rows[f.bucket]; !changed {
		t.rows[f.bucket] = stored
	}
	t.late[f.bucket] += f.missed
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
	t.late[f.bucket] -= f.missed
	t.count(f.bucket, f.missed)
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
	if t.own != own.Start && !t.unsaved[t.own] && t.rows[t.own] > 0 {
		others = append(others, t.bucket(t.own))
	}
	return own, others
}

func (t *tally) bucket(start time.Time) persistence.Bucket {
	return persistence.Bucket{Start: start, Rows: t.rows[start]}
}

// saved notes that changes are saved.
func (t *tally) saved(own persistence.Bucket, others []persistence.Bucket) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.own = own.Start
	for _, c := range append(others, own) {
		if t.rows[c.Start] == c.Rows {
			delete(t.unsaved, c.Start)
		}
	}
	if len(t.rows) < 2*int(persistence.AuditWindow/persistence.BucketWidth) {
		return
	}
	old := t.low.CreatedTime.Add(-persistence.AuditWindow - time.Hour)
	for bucket := range t.rows {
		if bucket.Before(old) && !t.unsaved[bucket] && t.late[bucket] == 0 {
			delete(t.rows, bucket)
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
