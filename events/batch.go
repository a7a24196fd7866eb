package events

import (
	"context"
	"slices"
	"time"

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

// part is an entry of a batch, and the lane that it is taken from.
type part struct {
	lane  *lane
	entry *entry
}

// takeBatch takes what is ready for a batch handler: of each lane the head, and
// what follows it and is for that handler alone.
func (l *lanes) takeBatch(b *batchHandler) (group []part) {
	waiting := l.batches[b]
	for len(waiting) > 0 && len(group) < l.batchSize {
		ln := take(&waiting)
		for _, e := range ln.queue {
			if len(group) == l.batchSize || l.batchOf(e) != b {
				break
			}
			group = append(group, part{ln, e})
			if len(e.pending) > 1 {
				break
			}
		}
	}
	l.batches[b] = waiting
	if len(waiting) > 0 {
		l.ready = append(l.ready, turn{batch: b})
	}
	return group
}

func (l *lanes) finishBatch(group []part) (next job, more bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running--
	for i, p := range group {
		if i > 0 && group[i-1].lane == p.lane {
			continue
		}
		taken, left := p.entry, true
		for left && len(p.lane.queue[0].pending) == 0 {
			left = l.settle(p.lane)
		}
		switch {
		case !left, l.closed:
		case p.lane.queue[0] == taken && l.batchOf(taken) != nil: // it has not been tried, since the term ends
			l.park(p.lane, time.Time{})
		default:
			l.enqueue(p.lane)
		}
	}
	return l.ended()
}

// batchOf returns the batch handler that is the next to get an entry: in a batch,
// unless it has failed a moment ago, or may be what ends the process.
func (t *term) batchOf(e *entry) *batchHandler {
	if e.careful || e.suspect {
		return nil
	}
	for _, dl := range e.pending {
		if dl.batch != nil && !t.notDue(dl) {
			return dl.batch
		}
	}
	return nil
}

// deliverBatch applies a batch handler to entries: to each alone once it has
// ended a goroutine, since then nobody knows how far that one has come.
func (t *term) deliverBatch(b *batchHandler, group []part, alone bool) {
	failed := map[*lane]bool{}
	if alone {
		t.eachAlone(b, group, failed)
	} else {
		t.halve(b, group, failed)
	}
	for _, p := range group {
		if len(p.entry.pending) == 0 && p.entry.found != nil {
			t.tally.settle(p.entry.found)
		}
	}
}

// eachAlone applies a batch handler to what is left of a batch, one by one.
func (t *term) eachAlone(b *batchHandler, group []part, failed map[*lane]bool) {
	for i, p := range group {
		dl := p.entry.deliveryTo(b)
		if dl == nil {
			continue // it is settled
		}
		if t.notDue(dl) {
			failed[p.lane] = true
		}
		t.halve(b, group[i:i+1], failed)
	}
}

// halve applies a batch handler in one transaction, or, if it fails, to one half
// after the other: an event on which it fails costs few transactions more than
// the logarithm of their number, and lets only its own lane wait.
func (t *term) halve(b *batchHandler, group []part, failed map[*lane]bool) {
	group = slices.DeleteFunc(slices.Clone(group), func(p part) bool { return failed[p.lane] })
	switch {
	case len(group) == 0 || t.stopping():
		return
	case len(group) == 1:
		p := group[0]
		dl := p.entry.deliveryTo(b)
		if t.try(p.entry.record, dl, false) {
			p.entry.settle(dl)
		} else {
			failed[p.lane] = true
		}
		return
	}
	began := t.d.now()
	fresh, entered, err := t.applyBatch(b, group)
	switch {
	case err == nil:
		t.tellOfBatch(b, group, fresh, began)
		for _, p := range group {
			dl := p.entry.deliveryTo(b)
			t.forget(dl)
			p.entry.settle(dl)
		}
	case !entered && !t.stopping(): // so it is nobody's fault
		first := group[0].entry.deliveryTo(b)
		t.fail(group[0].entry.record, first, false, err)
		for _, p := range group {
			dl := p.entry.deliveryTo(b)
			dl.due, dl.tried = first.due, true
		}
	default:
		half := len(group) / 2
		t.halve(b, group[:half], failed)
		t.halve(b, group[half:], failed)
	}
}

// applyBatch runs a batch handler in a transaction, after the markers of all its
// events, with those whose markers did not exist, which are fresh.
func (t *term) applyBatch(b *batchHandler, group []part) (fresh []bool, entered bool, err error) {
	markers := make([]persistence.Marker, len(group))
	for i, p := range group {
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
		for i, p := range group {
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
		first := group[0].entry
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
