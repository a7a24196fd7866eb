package events

import "time"

// step is what comes next for an entry that nobody is at.
type step struct {
	kind  stepKind
	batch *batchHandler // of inBatch
	due   time.Time     // of later
}

type stepKind int

const (
	done     stepKind = iota // all its deliveries are settled
	alone                    // it is to be delivered by itself
	inBatch                  // it is to be delivered to a batch handler
	later                    // each of its deliveries waits for the end of a back-off
	notAgain                 // nothing more: the term ends, or the pass has tried all there is
)

// step decides what comes next for an entry. It is the only place that does, after
// whatever has become of the entry.
//
// Of several deliveries that are due, the one that has been so for longest is
// next: one that fails again and again holds back none of the others.
func (t *term) step(e *entry) step {
	switch {
	case len(e.pending) == 0:
		return step{kind: done}
	case t.stopping():
		return step{kind: notAgain}
	}
	var next *delivery
	soonest := e.pending[0].due
	for _, dl := range e.pending {
		if dl.due.Before(soonest) {
			soonest = dl.due
		}
		if !t.notDue(dl) && (next == nil || dl.due.Before(next.due) || dl.due.Equal(next.due) && e.batches(dl) && !e.batches(next)) {
			next = dl
		}
	}
	switch {
	case next == nil && t.patient:
		return step{kind: later, due: soonest}
	case next == nil:
		return step{kind: notAgain}
	case e.batches(next):
		return step{kind: inBatch, batch: next.batch}
	}
	return step{kind: alone}
}

// takes reports whether an entry can be delivered to a batch handler now.
func (t *term) takes(b *batchHandler, e *entry) bool {
	dl := e.deliveryTo(b)
	return dl != nil && e.batches(dl) && !t.notDue(dl)
}

// batches reports whether a delivery may share a transaction with others. It may
// not if its entry may be what ends the process, or if all that is left to do is a
// dead letter.
func (e *entry) batches(dl *delivery) bool {
	return dl.batch != nil && !e.careful && !e.suspect && !dl.exhausted && dl.exited == nil
}
