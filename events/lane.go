package events

import "time"

// lane is what is to be delivered one after the other.
type lane struct {
	key   laneKey
	queue []*entry
	at    place
	timer *time.Timer // of parked
}

// place is where a lane is: in exactly one at a time.
type place int

const (
	taken    place = iota // a worker is at its head, or it is being put somewhere
	ready                 // in lanes.ready
	suspects              // in lanes.suspects
	batches               // in lanes.batches
	parked                // until the timer is up
	stopped               // nothing more is delivered from it, until the lanes are gone
)

// idle reports whether what is in a lane waits for something else than a worker.
func (p place) idle() bool { return p == parked || p == stopped }

// put puts a lane, which is taken, where it belongs, by what comes next for its
// head. What is settled leaves it.
func (l *lanes) put(ln *lane) {
	next := l.step(ln.queue[0])
	for next.kind == done {
		if l.settle(ln); len(ln.queue) == 0 {
			delete(l.byKey, ln.key)
			return
		}
		next = l.step(ln.queue[0])
	}
	switch next.kind {
	case alone:
		if ln.queue[0].suspect {
			l.move(ln, suspects)
			l.suspects = append(l.suspects, ln)
			return
		}
		l.move(ln, ready)
		l.ready = append(l.ready, turn{lane: ln})
	case inBatch:
		l.move(ln, batches)
		if len(l.batches[next.batch]) == 0 {
			l.ready = append(l.ready, turn{batch: next.batch})
		}
		l.batches[next.batch] = append(l.batches[next.batch], ln)
	case later:
		l.move(ln, parked)
		ln.timer = time.AfterFunc(time.Until(next.due), func() { l.unpark(ln) })
	case notAgain:
		l.move(ln, stopped)
	}
}

// unpark lets a lane go on, whose head is due.
func (l *lanes) unpark(ln *lane) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ln.timer = nil
	l.move(ln, taken)
	l.put(ln)
	l.schedule()
	l.tell()
}

// move notes where a lane is.
func (l *lanes) move(ln *lane, to place) {
	switch {
	case to.idle() && !ln.at.idle():
		l.queued -= len(ln.queue)
	case !to.idle() && ln.at.idle():
		l.queued += len(ln.queue)
	}
	ln.at = to
}

// settle takes the head off a lane, which is taken.
func (l *lanes) settle(ln *lane) {
	head := ln.queue[0]
	l.bytes -= int64(len(head.record.Payload))
	l.queued--
	if head.found == nil {
		l.settled++
	}
	l.leaves(head)
	head.record.Payload = nil // it may wait for the mark for long
	head.settled.Store(true)
	ln.queue[0] = nil
	ln.queue = ln.queue[1:]
}
