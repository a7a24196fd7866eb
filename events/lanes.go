package events

import (
	"sync"
	"time"

	"github.com/onward-go/outbox/persistence"
)

// lanes delivers entries: those of one aggregate one after the other, those of
// different ones in parallel. It is safe for concurrent use.
type lanes struct {
	deliverer
	width    int        // how many run at once
	widthNow func() int // asked now and then
	fitted   time.Time  // when it was last asked
	// single puts everything into one lane, which keeps the order of reading,
	// and stops at the failing event.
	single    bool
	batchSize int
	// suspectTime is how long a suspect may keep others from starting: its handler's
	// time, after which the process has evidently outlived it.
	suspectTime time.Duration
	// changed is told when something has ended for which somebody waits.
	changed signal

	mu       sync.Mutex
	byKey    map[laneKey]*lane
	ready    []turn
	batches  map[*batchHandler][]*lane // ready, for a batch
	suspects []*lane                   // ready, but with a suspect at their head
	running  int
	suspect  *entry      // the one that runs
	overdue  *time.Timer // until it has had its time
	yields   bool        // a suspect was started last, so others are next
	closed   bool
	queued   int             // entries of lanes that are not idle
	bytes    int64           // of all payloads
	settled  int64           // entries of the window, ever
	awaited  func(load) bool // somebody waits for that; see await
}

// deliverer is whoever knows the handlers. Each entry is of one goroutine at a time.
type deliverer interface {
	// step says what comes next for an entry that nobody is at.
	step(*entry) step
	// deliver tries an entry by itself.
	deliver(*entry)
	// takes reports whether an entry can be delivered to a batch handler now.
	takes(*batchHandler, *entry) bool
	// deliverBatch tries a batch. A lane that is decided before the rest of it can
	// be let go.
	deliverBatch(*batch)
	// leaves is told of an entry that is settled, and leaves its lane.
	leaves(*entry)

	// newChain returns a chain to try entries in, or nil where there are none.
	newChain() persistence.Chain
	// follows reports whether an entry can be tried in a chain.
	follows(*entry) bool
	// attempt tries one. It may have succeeded but for the commit, of which
	// committed is told later.
	attempt(c persistence.Chain, e *entry, committed func(error)) (held, entered bool, err error)
	// conclude decides what came of an attempt.
	conclude(e *entry, entered bool, err error)
}

// laneKey is what order is kept by.
type laneKey struct{ account, aggregateType, aggregateID string }

// add queues entries, in the order of the arguments.
func (l *lanes) add(entries ...*entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range entries {
		l.bytes += int64(len(e.record.Payload))
		key := l.keyOf(e.record)
		ln := l.byKey[key]
		if ln == nil {
			ln = &lane{key: key}
			l.byKey[key] = ln
		}
		ln.queue = append(ln.queue, e)
		if !ln.at.idle() {
			l.queued++
		}
		if len(ln.queue) == 1 {
			l.put(ln)
		}
	}
	l.schedule()
}

func (l *lanes) keyOf(r persistence.Record) laneKey {
	if l.single {
		return laneKey{}
	}
	return laneKey{r.AccountID, r.AggregateType, r.AggregateID}
}

// turn is something that can run: a lane, or a batch of several.
type turn struct {
	lane  *lane
	batch *batchHandler
}

// schedule starts what can run. The caller holds the mutex.
func (l *lanes) schedule() {
	for job, ok := l.next(); ok; job, ok = l.next() {
		go (&worker{lanes: l, chain: l.newChain()}).work(job)
	}
}

// job is what a goroutine delivers in one go: the head of a lane, or a batch.
type job struct {
	lane  *lane
	head  *entry
	batch *batch
}

// next takes what is to run next, if it may. The caller holds the mutex.
func (l *lanes) next() (job, bool) {
	l.fit()
	if l.closed || l.running >= l.width {
		return job{}, false
	}
	var next turn
	switch {
	case l.suspectIsNext():
		next.lane = take(&l.suspects)
		l.startSuspect(next.lane.queue[0])
	case len(l.ready) == 0:
		return job{}, false
	default:
		next = take(&l.ready)
		l.yields = false
	}
	l.running++
	if next.batch != nil {
		return job{batch: l.takeBatch(next.batch)}, true
	}
	return l.takeHead(next.lane), true
}

// suspectIsNext reports whether a suspect is to be started before what is ready: one at
// a time, in turn with the others, since a suspect that goes on failing delays nobody.
func (l *lanes) suspectIsNext() bool {
	return len(l.suspects) > 0 && l.suspect == nil && (!l.yields || len(l.ready) == 0)
}

// startSuspect keeps other suspects from starting until this one ends, or has had its
// time: a handler that does not return delays its own aggregate alone.
func (l *lanes) startSuspect(e *entry) {
	l.suspect, l.yields = e, true
	l.overdue = time.AfterFunc(l.suspectTime, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.endSuspect(e)
		l.schedule()
	})
}

func (l *lanes) endSuspect(e *entry) {
	if l.suspect == e {
		l.suspect = nil
		l.overdue.Stop()
	}
}

func (l *lanes) takeHead(ln *lane) job {
	l.move(ln, taken)
	return job{lane: ln, head: ln.queue[0]}
}

func take[T any](from *[]T) T {
	var none T
	first := (*from)[0]
	(*from)[0] = none
	*from = (*from)[1:]
	return first
}

// finish puts the lane of a job that has ended where it belongs.
func (l *lanes) finish(j job) (next job, more bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running--
	l.endSuspect(j.head)
	l.put(j.lane)
	return l.ended()
}

// ended returns what the goroutine that has ended something does next, starts
// what can run beside that, and tells who has waited for it.
func (l *lanes) ended() (next job, more bool) {
	next, more = l.next()
	l.schedule()
	l.tell()
	return next, more
}

// tell tells who has waited for what holds now.
func (l *lanes) tell() {
	if l.awaited != nil && l.awaited(l.now()) {
		l.awaited = nil
		l.changed.tell()
	}
}

// await has changed told once, when something has ended and done holds. It
// reports whether it holds already.
func (l *lanes) await(done func(load) bool) (already bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if already = done(l.now()); !already {
		l.awaited = done
	}
	return already
}

// stopAwaiting lets nobody call done any more.
func (l *lanes) stopAwaiting() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.awaited = nil
}

// close starts nothing any more. What runs goes on.
func (l *lanes) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for _, ln := range l.byKey {
		if ln.timer != nil {
			ln.timer.Stop()
		}
	}
}

// load is what the lanes have before them.
type load struct {
	running int
	width   int // how many can run at once
	lanes   int // with something that is not settled
	ready   int // of them that could run, but for the width
	queued  int // entries that are not settled, of lanes that are not idle
	bytes   int64
	settled int64
}

// still reports whether nothing runs.
func (l load) still() bool { return l.running == 0 }

func (l *lanes) load() load {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.now()
}

func (l *lanes) now() load {
	ready := len(l.ready)
	for _, waiting := range l.batches {
		ready += len(waiting)
	}
	return load{l.running, l.width, len(l.byKey), ready, l.queued, l.bytes, l.settled}
}
