package events

import (
	"context"
	"math"
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
	page, err := t.read(ctx, limit, unbounded)
	if err != nil || !due {
		return page.fresh, page.more, err
	}
	t.reached(mark, page)
	t.moved(t.advance())
	return page.fresh, page.more, t.save(ctx)
}

// reached notes a mark, and the page that was read after it: up to its end, what
// lies before the mark has been read.
func (t *term) reached(mark persistence.SafeMark, page page) {
	t.mark, t.complete, t.holdouts = mark.Time, page.complete, persistence.Holdouts{}
	if !page.lateLeft {
		t.holdouts = mark.Holdouts
	}
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
	now := t.lanes.load()
	waiting, since := t.waitingOf(now), time.Since(t.marked)
	return waiting-t.unsaved >= batch || since >= saveEvery && (waiting > 0 || t.dirty()) ||
		since >= t.held && t.isFull(now)
}

// isFull reports whether the window takes nothing more, and would if the cursor
// moved: its first event is settled, and the lanes run short, or a half of it is
// settled.
func (t *term) isFull(now load) bool {
	entries := t.window.entries
	if len(entries) < t.d.windowEvents || !entries[0].settled.Load() {
		return false
	}
	return now.ready == 0 || 2*(t.waitingOf(now)-t.unsaved) >= len(entries)
}

// leastHeld is how long the dispatcher waits before it asks for the mark again that
// holds the cursor back while the window is full. It waits twice as long each time.
const leastHeld = 2 * time.Millisecond

// moved notes whether the cursor has moved.
func (t *term) moved(passed int) {
	if passed > 0 {
		t.held = 0
	} else {
		t.held = min(max(leastHeld, 2*t.held), saveEvery)
	}
}

// untilDue returns when it is time to look whether the cursor can move: not a
// moment before it may, which would cost a read that moves nothing.
func (t *term) untilDue() time.Duration {
	wait := saveEvery
	if t.isFull(t.lanes.load()) {
		wait = t.held
	}
	if wait -= time.Since(t.marked); wait > 0 {
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

// lateRoom returns how many late events the next read takes. The window holds as
// many of them as of others, so that a producer which commits many at once does not
// fill the memory. What the cursor is waiting for is read even so.
func (t *term) lateRoom(now load) int {
	const page, least = 1000, 16
	room := 2*t.d.windowEvents - len(t.window.entries)
	if room <= 0 || now.bytes >= int64(t.d.windowBytes) {
		if len(t.window.entries) > 0 && t.complete.Compare(t.window.entries[0].at) >= 0 {
			return 0
		}
		return least
	}
	return min(room, page)
}

// takesMore reports whether a read would find room for something.
func (t *term) takesMore(now load) bool {
	return t.roomBeside(now) > 0 || t.lateLeft && t.lateRoom(now) > 0
}

// page is what a read has found.
type page struct {
	fresh    int                // events after the former frontier
	busy     int                // events with something to deliver
	complete persistence.Cursor // up to there, all that was visible is known
	more     bool
	lateLeft bool // it ends before the former frontier, so that some of what is late is left
}

// unbounded is no bound of what a read hands to the lanes.
const unbounded = math.MaxInt

// read fetches a page of what is visible and not known yet: what is late, and up to
// limit events after the frontier. It hands no more than most events to the lanes.
//
// It is one statement, so one snapshot: whoever sees an aggregate's later event
// sees its earlier ones, too. That is what keeps their order; see
// [persistence.WindowRead] for why a page does.
func (t *term) read(ctx context.Context, limit, most int) (page, error) {
	frontier := t.window.frontier
	counted, count := t.window.counted(t.complete)
	held := min(count, t.window.before(t.holdouts.Beyond))
	began, now := t.d.now(), t.lanes.load()
	maxBytes := max(1, int(int64(t.d.windowBytes)-now.bytes))
	found, err := t.d.store.ReadWindow(ctx, persistence.WindowRead{
		After:      t.window.low,
		Frontier:   frontier,
		Known:      t.window.known,
		KnownCount: len(t.window.entries),
		Counted:    counted,
		Count:      count,
		Holdouts:   t.holdouts,
		CountHeld:  held,
		LateLimit:  t.lateRoom(now),
		Limit:      min(limit, t.pace),
		MaxBytes:   maxBytes,
	})
	if err != nil {
		return page{}, err
	}
	t.tally.see(found.Now)
	entries := make([]*entry, len(found.Records))
	for i, r := range found.Records {
		entries[i] = t.entry(r)
	}
	if err := t.skipApplied(ctx, entries); err != nil {
		return page{}, err
	}
	p := page{complete: found.Complete, more: found.More}
	t.keepPace(found, frontier)
	if n := firstBusy(entries, most); n < len(entries) {
		p.complete, p.more = entries[n].at.Preceding(), true
		entries = entries[:n]
	}
	p.lateLeft = p.complete.Compare(frontier) < 0
	t.lateLeft = p.lateLeft
	deepest := 0
	t.window.mu.Lock()
	for _, e := range entries {
		if e.at.Compare(frontier) > 0 {
			p.fresh++
		}
		if len(e.pending) > 0 {
			p.busy++
		}
		deepest = max(deepest, t.window.add(e))
	}
	t.window.mu.Unlock()
	t.window.learn(deepest)
	// A read after the last mark, too, has seen what lies before it.
	if p.complete.Compare(t.complete) > 0 {
		t.complete = p.complete
	}
	tell(t.d, ofRead, ReadInfo{Dispatcher: t.d.name, Events: p.fresh, Late: len(entries) - p.fresh, Window: len(t.window.entries), Duration: since(began)})
	t.enqueue(entries)
	return p, nil
}

// firstPace is how many new events a term asks for at first.
const firstPace = 500

// keepPace bounds how many events the next read asks for by what this one has had
// room for: a database sends what it was asked for, also when the rest is of no use.
func (t *term) keepPace(found persistence.WindowPage, frontier persistence.Cursor) {
	fresh, size := 0, 0
	for _, r := range found.Records {
		size += len(r.Payload)
		if r.Cursor().Compare(frontier) > 0 {
			fresh++
		}
	}
	switch {
	case fresh >= t.pace:
		t.pace = min(2*t.pace, unbounded/2)
	case found.More && size >= t.d.windowBytes/2:
		t.pace = max(1, 2*fresh)
	}
}

// firstBusy returns the index of the first entry after as many as most that have
// something to deliver.
func firstBusy(entries []*entry, most int) int {
	for i, e := range entries {
		if len(e.pending) == 0 {
			continue
		}
		if most--; most < 0 {
			return i
		}
	}
	return len(entries)
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
		key := dl.marker.Key()
		dl.faults = t.d.faults[key]
		if a, ok := t.attempts[key]; ok {
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

// advance moves the cursor over what is settled, and returns how many events that
// are.
func (t *term) advance() int {
	passed := t.window.advance(t.mark, t.complete)
	t.passed += int64(len(passed))
	t.tally.pass(passed, t.resumed)
	return len(passed)
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
	err := t.d.cursors.Save(ctx, t.lease, persistence.Progress{
		Cursor: low, Count: own.Rows, Offsets: own.Offsets, CaughtUp: t.behind, Counts: others, Settled: settled,
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
	return nil
}
