package events

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/onward-go/outbox/persistence"
)

// entry is an event that has been read and is not behind the cursor yet.
type entry struct {
	at persistence.Cursor
	// record and pending, the deliveries that are not settled, belong to the
	// lane that runs the entry.
	record  persistence.Record
	pending []*delivery
	settled atomic.Bool
	// careful: the process may not outlive the handler, so that each try is
	// counted before it.
	careful bool
	// suspect: a process has ended while the handler ran, or it has failed
	// before. One suspect runs at a time, so that nobody is blamed for another.
	suspect bool
	// found is set on entries that an audit has found behind the cursor.
	found *finding
}

// window holds what lies between the low-water mark and the frontier. It belongs
// to one goroutine; others may look under its mutex.
//
// The durable cursor follows low, which never passes an event that is not
// settled, nor the safe mark, before which no event can appear any more. So
// delivery waits for neither: only the cursor does.
type window struct {
	mu       sync.Mutex         // held by the owner while it changes what follows, and by those who look
	low      persistence.Cursor // everything at or before it is settled
	frontier persistence.Cursor // the last event that has been read
	entries  []*entry           // after low, in order
	recent   int                // so many of the last are told by their positions
}

// known reports whether the window holds the event.
func (w *window) known(c persistence.Cursor) bool {
	_, found := w.search(c)
	return found
}

func (w *window) search(c persistence.Cursor) (int, bool) {
	return slices.BinarySearchFunc(w.entries, c, func(e *entry, c persistence.Cursor) int { return e.at.Compare(c) })
}

// What is late is most likely among the last entries: producers that run side by
// side commit in another order than they stamp. So a read is told those by their
// positions, and of the others only the number.
const leastRecent, mostRecent = 16, 256

// counted returns a position of the window and the number of entries up to it.
// Beyond complete there are late ones that have not been read.
func (w *window) counted(complete persistence.Cursor) (persistence.Cursor, int) {
	n, _ := w.search(complete)
	n = min(n, len(w.entries)-max(w.recent, leastRecent))
	if n <= 0 {
		return w.low, 0
	}
	return w.entries[n-1].at, n
}

// before returns the number of entries whose stamps are before a time.
func (w *window) before(at time.Time) int {
	n, _ := w.search(persistence.Cursor{CreatedTime: at})
	return n
}

// learn looks how far from the end a read has found what was late, and lets the
// next ones look twice as far by positions. That goes by again.
func (w *window) learn(deepest int) {
	if deepest > mostRecent/2 {
		deepest = 0 // somebody has stood still, which is another matter
	}
	w.recent = max(2*deepest, w.recent-w.recent/32-1, leastRecent)
}

// add puts an entry in its place, and returns how many come after it. Most are
// new, at the end; late ones have been committed after others with a later stamp
// were read. The caller holds the mutex.
func (w *window) add(e *entry) (after int) {
	c := e.at
	if c.Compare(w.frontier) > 0 {
		w.frontier = c
		w.entries = append(w.entries, e)
		return 0
	}
	i, _ := w.search(c)
	after = len(w.entries) - i
	w.entries = slices.Insert(w.entries, i, e)
	return after
}

// advance moves low over the entries that are settled and lie before the mark,
// not beyond complete, and returns them.
func (w *window) advance(mark time.Time, complete persistence.Cursor) []*entry {
	n := 0
	for n < len(w.entries) {
		e := w.entries[n]
		if !e.settled.Load() || !e.at.CreatedTime.Before(mark) || e.at.Compare(complete) > 0 {
			break
		}
		n++
	}
	passed := slices.Clone(w.entries[:n])
	if n > 0 {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.low = passed[n-1].at
		w.entries = slices.Delete(w.entries, 0, n)
	}
	return passed
}
