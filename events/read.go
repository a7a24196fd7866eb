package events

import (
	"context"
	"slices"
	"time"

	"github.com/onward-go/outbox/persistence"
)

// saveEvery is how long settled events wait for the cursor to be saved, unless
// a batch of them is there before. What a crash makes the next holder read again
// is stopped by markers.
const saveEvery = 200 * time.Millisecond

// cycle reads what has become visible, and hands it to the lanes; now and then
// it asks for the safe mark before, and saves the cursor after. It returns how
// many events were read, and whether there are more.
func (t *term) cycle(ctx context.Context, batch int) (n int, more bool, err error) {
	var mark persistence.SafeMark
	due := t.due(batch)
	if due {
		if mark, err = t.d.store.SafeMark(ctx); err != nil {
			return 0, false, err
		}
		t.marked, t.unsaved = time.Now(), t.waiting()
		t.tally.see(mark.Now)
		t.d.see(mark.Now)
	}
	if due && t.window.before(mark.Time) > 0 {
		// Nothing is left out before the cursor moves.
		t.holdouts = persistence.Holdouts{}
	}
	limit := min(batch, t.room())
	if t.lanes.single && t.busy(t.lanes.load(), 2*t.enough(batch)) {
		limit = 0 // with more lanes, there may be aggregates with less to wait for
	}
	n, more, err = t.read(ctx, limit)
	if err != nil || !due {
		return n, more, err
	}
	// What lies before them has been read now.
	t.mark, t.holdouts = mark.Time, mark.Holdouts
	t.advance()
	return n, more, t.save(ctx)
}

// busy reports whether all lanes run and have something to go on with, and so many
// events wait. What was read then would wait, too, in a window that each read counts.
func (t *term) busy(now load, queued int) bool {
	ready := t.lanes.single || now.ready >= now.width
	return ready && now.running >= now.width && now.queued >= queued
}

// enough is how many events are to wait.
func (t *term) enough(batch int) int { return max(batch, t.ahead) }

// due reports whether it is time to move the cursor.
func (t *term) due(batch int) bool {
	waiting := t.waiting()
	return waiting-t.unsaved >= batch || time.Since(t.marked) >= saveEvery && (waiting > 0 || t.dirty())
}

// untilDue returns when it is time to look whether the cursor can move: not a
// moment before it may, which would cost a read that moves nothing.
func (t *term) untilDue() time.Duration {
	if wait := saveEvery - time.Since(t.marked); wait > 0 {
		return wait
	}
	return saveEvery // nothing was settled, and may be by then
}

// waiting returns the number of settled events in the window.
func (t *term) waiting() int { return t.waitingOf(t.lanes.load()) }

func (t *term) waitingOf(now load) int { return int(now.settled + t.instant - t.passed) }

// room returns how many events the window still takes.
func (t *term) room() int { return t.roomBeside(t.lanes.load()) }

func (t *term) roomBeside(now load) int {
	if now.bytes >= int64(t.d.windowBytes) {
		return 0
	}
	return max(0, t.d.windowEvents-len(t.window.entries))
}

// read fetches what is visible and not known yet: what is late, all of it, and
// up to limit events after the frontier.
//
// It is one statement, so one snapshot: whoever sees an aggregate's later event
// sees its earlier ones, too. That is what keeps their order.
func (t *term) read(ctx context.Context, limit int) (fresh int, more bool, err error) {
	frontier := t.window.frontier
	counted, count := t.window.counted()
	held := min(count, t.window.before(t.holdouts.Beyond))
	began := t.d.now()
	maxBytes := max(1, int(int64(t.d.windowBytes)-t.lanes.load().bytes))
	records, err := t.d.store.ReadWindow(ctx, persistence.WindowRead{
		After:     t.window.low,
		Frontier:  frontier,
		Known:     t.window.known,
		Counted:   counted,
		Count:     count,
		Holdouts:  t.holdouts,
		CountHeld: held,
		Limit:     max(1, limit),
		MaxBytes:  maxBytes,
	})
	if err != nil {
		return 0, false, err
	}
	size := 0
	entries := make([]*entry, 0, len(records))
	for _, r := range records {
		if r.Cursor().Compare(frontier) > 0 {
			if limit == 0 { // the statement wants at least one
				break
			}
			fresh++
			size += len(r.Payload)
		}
		entries = append(entries, t.entry(r))
	}
	if err := t.skipApplied(ctx, entries); err != nil {
		return 0, false, err
	}
	deepest := 0
	t.window.mu.Lock()
	for _, e := range entries {
		deepest = max(deepest, t.window.add(e))
	}
	t.window.mu.Unlock()
	t.window.learn(deepest)
	tell(t.d, ofRead, ReadInfo{Dispatcher: t.d.name, Events: fresh, Late: len(entries) - fresh, Window: len(t.window.entries), Duration: since(began)})
	t.enqueue(entries)
	return fresh, fresh == limit || size >= maxBytes, nil
}

// enqueue hands entries to the lanes, but for those with nothing to do.
func (t *term) enqueue(entries []*entry) {
	busy := entries[:0]
	for _, e := range entries {
		if len(e.pending) > 0 {
			if t.careful > 0 {
				t.careful--
				e.careful = true
			}
			busy = append(busy, e)
			continue
		}
		e.record.Payload = nil
		e.settled.Store(true)
		t.instant++
	}
	t.lanes.add(busy...)
}

// entry returns an event of the window, with what is to be delivered: to all of
// the type's handlers, or, behind the cursor, to those that were left behind.
func (t *term) entry(r persistence.Record) *entry {
	c := r.Cursor()
	return t.entryFor(r, func(s *served) bool {
		behind := s.state.Behind
		return c.Compare(t.resumed) > 0 || behind != nil && c.Compare(*behind) > 0
	})
}

// entryFor returns an entry for the handlers that are to get it. Nobody gets
// events from before its subscription.
func (t *term) entryFor(r persistence.Record, wants func(*served) bool) *entry {
	c := r.Cursor()
	e := &entry{at: c, record: r}
	for _, s := range t.handlers[r.EventType] {
		if c.Compare(s.state.Start) <= 0 || !wants(s) {
			continue
		}
		dl := &delivery{subscription: s.subscription, marker: s.marker(r)}
		if a, ok := t.attempts[dl.marker.Key()]; ok {
			dl.recorded, dl.failures, dl.lastError = true, a.Attempts, a.LastError
			// The clock may have been set back since.
			dl.due = t.began.Add(min(a.NextTime.Sub(t.clock), t.d.backoff.most))
			e.suspect = e.suspect || t.lease.Unclean
		}
		e.pending = append(e.pending, dl)
	}
	return e
}

// skipApplied drops the deliveries whose markers exist, by one query for all. It
// asks only for events that a former holder may have delivered, as long as it finds
// some: a marker that it does not know of still stops the handler.
func (t *term) skipApplied(ctx context.Context, entries []*entry) error {
	meets := t.meets.Load() || t.lease.Unclean
	var asked []*entry
	var markers []persistence.Marker
	for _, e := range entries {
		if e.found == nil && (!meets || e.at.CreatedTime.After(t.clock)) {
			continue
		}
		asked = append(asked, e)
		for _, dl := range e.pending {
			markers = append(markers, dl.marker)
		}
	}
	if len(markers) == 0 {
		return nil
	}
	applied, err := t.d.idempotency.Applied(ctx, markers...)
	if err != nil {
		return err
	}
	t.meets.Store(slices.Contains(applied, true))
	for _, e := range asked {
		left := e.pending[:0]
		for i, dl := range e.pending {
			if applied[i] {
				t.forget(dl)
			} else {
				left = append(left, dl)
			}
		}
		applied = applied[len(e.pending):]
		e.pending = left
	}
	return nil
}

// advance moves the cursor over what is settled.
func (t *term) advance() {
	passed := t.window.advance(t.mark)
	t.passed += int64(len(passed))
	t.tally.pass(passed, t.resumed)
}

// dirty reports whether there is something to save beside the cursor.
func (t *term) dirty() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.settled) > 0 || t.tally.dirty()
}

// save writes how far everything has come.
func (t *term) save(ctx context.Context) error {
	t.mu.Lock()
	settled := t.settled
	t.mu.Unlock()
	if len(settled) == 0 && !t.tally.dirty() && t.window.low == t.saved {
		return nil
	}
	low := t.window.low
	own, others := t.tally.changes()
	t.mu.Lock()
	applied := t.applied // of what is passed and counted above, and maybe more
	t.mu.Unlock()
	err := t.d.cursors.Save(ctx, t.lease, persistence.Progress{
		Cursor: low, Count: own.Rows, Offsets: own.Offsets, CaughtUp: t.behind, Counts: others, Settled: settled, Applied: applied,
	})
	if err != nil {
		t.check(err)
		return err
	}
	t.saved = low
	tell(t.d, ofSaved, SaveInfo{Dispatcher: t.d.name, Cursor: low, Passed: t.passed})
	if low.Compare(t.resumed) >= 0 {
		t.behind = nil
		t.even.Store(true)
	}
	t.tally.saved(own, others)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.settled = t.settled[len(settled):]
	t.applied = t.applied[len(applied):]
	return nil
}
