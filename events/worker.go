package events

import "github.com/onward-go/outbox/persistence"

// worker is a goroutine's way through the jobs. Where the transactor can, it lets
// a transaction commit together with the begin of the next one: what it has
// delivered is held until then.
type worker struct {
	*lanes
	chain  persistence.Chain // nil where each transaction ends by itself
	held   job               // it has succeeded, but for the commit
	failed error             // why held is not committed
	now    *lane             // of what is being tried
}

// work does one job after the other: while there are some, an event costs no
// goroutine. If a handler ends this one by runtime.Goexit, another goes on.
func (w *worker) work(j job) {
	ended := true
	defer func() {
		if ended {
			if j.batch != nil {
				j.batch.alone = true
			}
			go w.work(j)
		}
	}()
	for more := true; more; {
		switch {
		case j.batch != nil:
			w.deliverBatch(j.batch)
			j, more = w.finishBatch(j.batch)
		case w.chain == nil || !w.follows(j.head):
			w.deliver(j.head)
			j, more = w.finish(j)
		default:
			j, more = w.chained(j)
		}
	}
	ended = false
}

// chained tries an entry, whose transaction begins as that of the held one ends.
func (w *worker) chained(j job) (next job, more bool) {
	before := w.held
	w.now = j.lane
	held, entered, err := w.attempt(w.chain, j.head, func(err error) { w.committed(j, err) })
	w.now = nil
	switch {
	case w.failed != nil: // so this one has not been tried
		w.putBack(j, before.lane)
		j, entered, err = before, true, w.failed
	case held:
		w.held = j
		if next, more = w.follower(j); more {
			return next, true
		}
		w.chain.Flush()
		entered, err = true, w.failed
	}
	w.held, w.failed = job{}, nil
	w.conclude(j.head, entered, err)
	return w.finish(j)
}

// committed takes note of what became of the held transaction. While the next one
// begins, its lane need not wait for that one's handler.
func (w *worker) committed(j job, err error) {
	if err != nil || w.now == nil {
		w.failed = err
		return
	}
	w.conclude(j.head, true, nil)
	w.release(j.lane, w.now)
}

// follower takes what is to be tried in a chain after j, if there is something.
func (l *lanes) follower(j job) (job, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed, l.suspectIsNext():
	case len(l.ready) > 0:
		first := l.ready[0]
		if first.batch == nil && l.follows(first.lane.queue[0]) {
			l.yields = false
			return l.takeHead(take(&l.ready).lane), true
		}
	case len(j.lane.queue) > 1 && l.follows(j.lane.queue[1]):
		return job{lane: j.lane, head: j.lane.queue[1]}, true
	}
	return job{}, false
}

// release lets a lane go on whose head is settled. What is being delivered may be
// of that lane itself, which stays taken then.
func (l *lanes) release(ln, now *lane) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if ln == now {
		l.settle(ln)
	} else {
		l.put(ln)
		l.schedule()
	}
	l.tell()
}

// putBack makes an entry wait that has been taken and not been tried. What waits
// behind an entry of its own lane needs nothing.
func (l *lanes) putBack(j job, before *lane) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if j.lane != before {
		l.put(j.lane)
	}
}
