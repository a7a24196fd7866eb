package events

import (
	"context"
	"iter"
	"slices"

	"github.com/onward-go/outbox/persistence"
)

// BatchHandler reacts to several events of one type at once. Its context carries
// the transaction in which it runs, and no account, since the events may be of
// several: see [Event.AccountID]. The events of an aggregate are in order. An
// error rolls the transaction back.
type BatchHandler func(ctx context.Context, evts []Event) error

// batchHandler is a subscription of SubscribeBatch.
type batchHandler struct {
	handler BatchHandler
	wrapped Handler // next in the middleware; nil without one
}

// one applies the handler to a single event.
func (b *batchHandler) one(ctx context.Context, evt Event) error {
	return b.call(WithAccountID(ctx, ""), []Event{evt})
}

// batch is what is delivered to a batch handler in one go.
type batch struct {
	handler   *batchHandler
	parts     []part // those of one lane side by side, in order
	undecided int
	// alone delivers each part by itself: the handler has ended a goroutine, and
	// nobody knows how far that one has come.
	alone bool
}

// part is an entry of a batch.
type part struct {
	of    *share
	entry *entry
}

// share is what a batch has of a lane.
type share struct {
	lane      *lane
	undecided int // parts; as long as there are some, the batch has the lane
	left      bool
}

// shares returns those of some parts of a batch.
func shares(parts []part) iter.Seq[*share] {
	return func(yield func(*share) bool) {
		for i, p := range parts {
			if (i == 0 || parts[i-1].of != p.of) && !yield(p.of) {
				return
			}
		}
	}
}

// takeBatch takes what is ready for a batch handler: of each lane the head, which
// the lane has been put here for, and what follows it and is for that handler alone.
func (l *lanes) takeBatch(h *batchHandler) *batch {
	b := &batch{handler: h}
	waiting := l.batches[h]
	all := make([]share, min(len(waiting), l.batchSize))
	for len(waiting) > 0 && len(b.parts) < l.batchSize {
		of := &all[0]
		all = all[1:]
		of.lane = take(&waiting)
		l.move(of.lane, taken)
		for i, e := range of.lane.queue {
			if i > 0 && (len(b.parts) == l.batchSize || len(of.lane.queue[i-1].pending) > 1 || !l.takes(h, e)) {
				break
			}
			b.parts = append(b.parts, part{of, e})
			of.undecided++
		}
	}
	b.undecided = len(b.parts)
	l.batches[h] = waiting
	if len(waiting) > 0 {
		l.ready = append(l.ready, turn{batch: h})
	}
	return b
}

// letGo puts the lanes of some parts where they belong, as soon as the batch has
// decided on all that it has of them: what is left of it may take long. The last
// ones wait for finishBatch.
func (l *lanes) letGo(b *batch, parts []part) {
	if b.undecided == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for s := range shares(parts) {
		if s.undecided == 0 {
			l.leave(s)
		}
	}
	l.schedule()
	l.tell()
}

// finishBatch puts the lanes that a batch still has where they belong.
func (l *lanes) finishBatch(b *batch) (next job, more bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running--
	for s := range shares(b.parts) {
		l.leave(s)
	}
	return l.ended()
}

func (l *lanes) leave(s *share) {
	if !s.left {
		s.left = true
		l.put(s.lane)
	}
}

// deliverBatch applies a batch handler to the parts of a batch.
func (t *term) deliverBatch(b *batch) {
	if !b.alone {
		t.halve(b, b.parts)
		return
	}
	for i := range b.parts {
		t.halve(b, b.parts[i:i+1])
	}
}

// halve applies a batch handler in one transaction, or, if it fails, to one half
// after the other: an event on which it fails costs few transactions more than
// the logarithm of their number, and lets only its own lane wait.
func (t *term) halve(b *batch, parts []part) {
	parts = b.left(parts)
	if len(parts) == 0 || t.stopping() {
		return
	}
	first := parts[0].entry.deliveryTo(b.handler)
	if len(parts) == 1 {
		if t.try(parts[0].entry.record, first, false) {
			t.settleParts(b, parts)
		} else {
			t.failParts(b, parts)
		}
		return
	}
	began := t.d.now()
	fresh, entered, err := t.applyBatch(b.handler, parts)
	switch {
	case err == nil:
		t.tellOfBatch(b.handler, parts, fresh, began)
		for _, p := range parts {
			t.forget(p.entry.deliveryTo(b.handler))
		}
		t.settleParts(b, parts)
	case !entered && !t.stopping() && (first.faults+1)%faultsPerAttempt != 0: // so it is nobody's fault
		t.postponeParts(b, parts, err)
	default: // also now and then what cannot begin, since that may be due to one of them
		half := len(parts) / 2
		t.halve(b, parts[:half])
		t.halve(b, parts[half:])
	}
}

// left returns the parts that are still to be tried. What a lane has behind a part
// that has failed, or could not be tried, is not.
func (b *batch) left(parts []part) []part {
	return slices.DeleteFunc(slices.Clone(parts), func(p part) bool {
		return p.of.undecided == 0 || p.entry.deliveryTo(b.handler) == nil
	})
}

// settleParts notes that the handler is done with parts of a batch.
func (t *term) settleParts(b *batch, parts []part) {
	for _, p := range parts {
		p.entry.settle(p.entry.deliveryTo(b.handler))
		p.of.undecided--
	}
	b.undecided -= len(parts)
	t.lanes.letGo(b, parts)
}

// failParts notes that the lanes of parts have to wait.
func (t *term) failParts(b *batch, parts []part) {
	for s := range shares(parts) {
		b.undecided -= s.undecided
		s.undecided = 0
	}
	t.lanes.letGo(b, parts)
}

// postponeParts tries parts again later whose transaction could not begin.
func (t *term) postponeParts(b *batch, parts []part, cause error) {
	t.check(cause)
	first := parts[0].entry.deliveryTo(b.handler)
	first.faults++
	t.postpone(parts[0].entry.record, first, cause)
	for _, p := range parts {
		dl := p.entry.deliveryTo(b.handler)
		dl.due, dl.tried, dl.faults = first.due, true, max(dl.faults, first.faults)
	}
	t.failParts(b, parts)
}

// applyBatch runs a batch handler in a transaction, after the markers of all its
// events, with those whose markers did not exist, which are fresh.
func (t *term) applyBatch(b *batchHandler, parts []part) (fresh []bool, entered bool, err error) {
	markers := make([]persistence.Marker, len(parts))
	for i, p := range parts {
		markers[i] = p.entry.deliveryTo(b).marker
	}
	ctx, cancel := t.timeouts.next()
	defer cancel()
	entered, err = t.d.transact(ctx, t.d.tx.Atomically, onThis(func(error) {}), func(ctx context.Context) (func() error, error) {
		recorded, err := t.d.idempotency.Record(ctx, markers...)
		fresh = recorded
		if err != nil {
			return nil, err
		}
		var evts []Event
		for i, p := range parts {
			if recorded[i] {
				evts = append(evts, eventOf(p.entry.record))
			} else {
				t.meets.Store(true)
			}
		}
		if len(evts) == 0 {
			return nil, nil
		}
		return func() error { return b.call(ctx, evts) }, nil
	})
	if late, ok := err.(*afterHandler); ok {
		first := parts[0].entry
		entered, err = t.late(late, "the batch of "+where(first.record, first.deliveryTo(b)), markers...)
	}
	return fresh, entered, err
}

// deliveryTo returns the entry's delivery to a batch handler, or nil.
func (e *entry) deliveryTo(b *batchHandler) *delivery {
	for _, dl := range e.pending {
		if dl.batch == b {
			return dl
		}
	}
	return nil
}

// settle takes a delivery off the entry.
func (e *entry) settle(dl *delivery) {
	e.pending = slices.DeleteFunc(e.pending, func(other *delivery) bool { return other == dl })
}
