package events

import (
	"sync"
	"time"

	"github.com/onward-go/outbox/persistence"
)

// lanes delivers entries: those of one aggregate one after the other, those of
// different ones in parallel. It is safe for concurrent use.
type lanes struct {
	width    int        // how many run at once
	widthNow func() int // asked now and then
	fitted   time.Time  // when it was last asked
	// single puts everything into one lane, which keeps the order of reading,
	// and stops at the failing event.
	single bool
	// deliver tries an entry. Unless that settled it, it returns when to try
	// again; the zero time is never.
	deliver func(*entry) (settled bool, again time.Time)
	// tries are those in a chain, of which newChain returns one, or nil where
	// there are none.
	tries    attempts
	newChain func() persistence.Chain
	// batchOf returns the batch handler that an entry is to be delivered to
	// next, or nil; deliverBatch tries entries of one, at most batchSize, if
	// need be each alone.
	batchOf      func(*entry) *batchHandler
	deliverBatch func(b *batchHandler, parts []part, alone bool)
	batchSize    int
	// changed is told when something has ended for which somebody waits.
	changed signal

	mu       sync.Mutex
	byKey    map[laneKey]*lane
	ready    []turn
	batches  map[*batchHandler][]*lane // ready, for a batch
	suspects []*lane                   // ready, but with a suspect at their head
	running  int
	suspect  bool // one runs
	closed   bool
	queued   int             // entries of lanes that are not parked
	bytes    int64           // of all payloads
	settled  int64           // entries of the window, ever
	awaited  func(load) bool // somebody waits for that; see await
}

// laneKey is what order is kept by.
type laneKey struct{ account, aggregateType, aggregateID string }

type lane struct {
	key    laneKey
	queue  []*entry
	parked bool        // its head has failed
	timer  *time.Timer // until it is tried again; nil is never
}

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
		if !ln.parked {
			l.queued++
		}
		if len(ln.queue) == 1 {
			l.enqueue(ln)
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

func (l *lanes) enqueue(ln *lane) {
	head := ln.queue[0]
	if head.suspect {
		l.suspects = append(l.suspects, ln)
	} else if b := l.batchOf(head); b != nil {
		if len(l.batches[b]) == 0 {
			l.ready = append(l.ready, turn{batch: b})
		}
		l.batches[b] = append(l.batches[b], ln)
	} else {
		l.ready = append(l.ready, turn{lane: ln})
	}
}

// schedule starts what can run. The caller holds the mutex.
func (l *lanes) schedule() {
	for job, ok := l.next(); ok; job, ok = l.next() {
		go (&worker{lanes: l, chain: l.newChain()}).work(job)
	}
}

// job is what a goroutine delivers in one go: the head of a lane, or a batch.
type job struct {
	lane    *lane
	head    *entry
	batch   *batchHandler
	parts   []part
	resumed bool // a handler has ended the goroutine that was at it
}

// next takes what is to run next, if it may. The caller holds the mutex.
func (l *lanes) next() (job, bool) {
	l.fit()
	if l.closed || l.running >= l.width {
		return job{}, false
	}
	var next turn
	switch {
	case len(l.suspects) > 0 && !l.suspect:
		l.suspect = true
		next.lane = take(&l.suspects)
	case len(l.ready) == 0:
		return job{}, false
	default:
		next = take(&l.ready)
	}
	l.running++
	if next.batch != nil {
		return job{batch: next.batch, parts: l.takeBatch(next.batch)}, true
	}
	return job{lane: next.lane, head: next.lane.queue[0]}, true
}

func take[T any](from *[]T) T {
	var none T
	first := (*from)[0]
	(*from)[0] = none
	*from = (*from)[1:]
	return first
}

func (l *lanes) finish(ln *lane, settled bool, again time.Time) (next job, more bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running--
	head := ln.queue[0]
	if head.suspect {
		l.suspect = false
	}
	switch {
	case settled:
		if l.settle(ln) {
			l.enqueue(ln)
		}
	case l.closed:
	default:
		l.park(ln, again)
	}
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

// settle takes the head of a lane, which is done, and reports whether there is
// another one.
func (l *lanes) settle(ln *lane) bool {
	head := ln.queue[0]
	l.bytes -= int64(len(head.record.Payload))
	l.queued--
	if head.found == nil {
		l.settled++
	}
	head.record.Payload = nil // it may wait for the mark for long
	head.settled.Store(true)
	ln.queue[0] = nil
	ln.queue = ln.queue[1:]
	if len(ln.queue) == 0 {
		delete(l.byKey, ln.key)
	}
	return len(ln.queue) > 0
}

// park sets a lane aside whose head is not settled. The zero time is for ever.
func (l *lanes) park(ln *lane, again time.Time) {
	l.queued -= len(ln.queue)
	ln.parked = true
	if !again.IsZero() {
		ln.timer = time.AfterFunc(time.Until(again), func() { l.unpark(ln) })
	}
}

func (l *lanes) unpark(ln *lane) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	ln.parked, ln.timer = false, nil
	l.queued += len(ln.queue)
	l.enqueue(ln)
	l.schedule()
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
	ready   int // lanes that could run, but for the width
	queued  int // entries that are not settled and not parked
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
	return load{l.running, l.width, ready, l.queued, l.bytes, l.settled}
}
