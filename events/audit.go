package events

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/onward-go/outbox/persistence"
)

// The audit looks behind the cursor for events that should not be there: those
// of somebody who stamps rows by himself, or of a clock that was set back. Rows
// are never changed or deleted one by one, so more rows in a bucket than the
// cursor has passed are events that it has missed. They are read again; markers
// stop what has been applied. An operator may have deleted a row all the same, beside
// one that was missed: then the numbers agree, and the sums of the stamps do not.
const (
	auditEvery  = time.Minute
	auditRecent = 10 * time.Minute
	// auditRows bounds what one statement counts.
	auditRows = 50_000
	// auditPage is how many events of a bucket are read again at once.
	auditPage = 500
	// clockEvery is how often it looks while the clock is behind the cursor,
	// and clockSlack how far around the clock: a producer stamps, and commits
	// later. The full audit looks further, since it takes a while until the
	// clock is seen to be behind.
	clockEvery = saveEvery
	clockSlack = 30 * time.Second
	clockReach = 5 * time.Minute
)

// watch audits until ctx ends: a day at first, since others may have been at
// work, then, each time, what was stamped since the last time and some minutes before.
func (t *term) watch(ctx context.Context, every time.Duration) {
	span, next := persistence.AuditWindow, time.Now()
	for {
		_, isBehind := t.tally.setBack()
		wait := time.Until(next)
		if isBehind {
			wait = min(wait, clockEvery)
		}
		if !t.await(ctx, wait) {
			return
		}
		if !t.even.Load() {
			continue // what handlers have been left behind by is read again anyway
		}
		due := !time.Now().Before(next)
		err := t.audit(ctx, span, due)
		if due && err == nil {
			span, next = auditRecent+every-auditEvery, time.Now().Add(every)
		}
		if err != nil && ctx.Err() == nil {
			t.check(err)
			t.d.log.LogAttrs(ctx, slog.LevelWarn, "outbox: audit failed", slog.String("dispatcher", t.d.name), slog.Any("error", err))
			if !t.await(ctx, auditEvery/10) {
				return
			}
		}
	}
}

// await waits, or until the clock falls behind the cursor, and reports false
// once the term has ended.
func (t *term) await(ctx context.Context, wait time.Duration) bool {
	timer := time.NewTimer(max(wait, clockEvery))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.tally.behind:
	case <-ctx.Done():
	case <-t.ctx.Done():
	}
	return ctx.Err() == nil && t.ctx.Err() == nil
}

// audit looks through the span before the cursor, if that is due, and through
// the time around the clock, if that is behind the cursor.
func (t *term) audit(ctx context.Context, span time.Duration, due bool) error {
	mark, err := t.d.store.SafeMark(ctx)
	if err != nil {
		return err
	}
	t.tally.see(mark.Now)
	lowest, isBehind := t.tally.setBack()
	_, low, _ := t.tally.position()
	if !due {
		if isBehind {
			return t.sweep(ctx, mark.Now.Add(-clockSlack), mark.Now.Add(clockSlack))
		}
		return nil
	}
	from := low.CreatedTime.Add(-span)
	if !lowest.IsZero() && lowest.Add(-clockReach).Before(from) {
		from = lowest.Add(-clockReach)
	}
	if err := t.sweep(ctx, from, low.CreatedTime); err != nil {
		return err
	}
	t.tally.caughtUp()
	return nil
}

// sweep compares the buckets between two times with what has been counted, as
// far as the cursor has come. It pauses as long as it works.
func (t *term) sweep(ctx context.Context, from, to time.Time) error {
	countedFrom, low, own := t.tally.position()
	if low.IsZero() {
		return nil
	}
	if from = persistence.BucketStart(from); from.Before(countedFrom) {
		from = countedFrom
	}
	// The last event itself has been counted, too.
	if end := low.CreatedTime.Add(time.Microsecond); to.After(low.CreatedTime) || to.Equal(low.CreatedTime) {
		to = end
	}
	if !from.Before(to) {
		return nil
	}
	stored, err := t.d.cursors.Counts(ctx, t.d.name, from, to)
	if err != nil {
		return err
	}
	for from.Before(to) {
		began, end, n := time.Now(), to, int64(0)
		known := map[time.Time]amount{}
		for len(stored) > 0 && end.Equal(to) {
			known[stored[0].Start] = amountOf(stored[0])
			if n += stored[0].Rows; n >= auditRows {
				end = stored[0].Start.Add(persistence.BucketWidth)
			}
			stored = stored[1:]
		}
		if end.After(to) {
			end = to
		}
		if err := t.compare(ctx, from, end, low, own, known); err != nil {
			return err
		}
		from = end
		if from.Before(to) && !sleep(ctx, t.ctx, time.Since(began)) {
			return context.Cause(ctx)
		}
	}
	return nil
}

// compare counts the rows between two times. Own is what had been counted in the
// bucket of low when the cursor was there.
func (t *term) compare(ctx context.Context, from, to time.Time, low persistence.Cursor, own amount, stored map[time.Time]amount) error {
	counted, err := t.d.store.CountRows(ctx, from, to)
	if err != nil {
		return err
	}
	for _, b := range counted {
		expected := t.tally.expected(b.Start, stored[b.Start])
		if b.Start.Equal(persistence.BucketStart(low.CreatedTime)) {
			expected = own
		}
		if !expected.agrees(amountOf(b)) {
			if err := t.reread(ctx, b.Start, low, expected, stored[b.Start]); err != nil {
				return err
			}
		}
	}
	return nil
}

// reread reads a bucket again, up to the cursor, and delivers what it has missed.
func (t *term) reread(ctx context.Context, bucket time.Time, low persistence.Cursor, expected, stored amount) error {
	absent, err := t.absent(ctx)
	if err != nil {
		return err
	}
	f := &finding{bucket: bucket}
	var unapplied []*entry
	elsewhere := false // owed to a handler that is not here
	var total amount
	for after := (persistence.Cursor{CreatedTime: bucket}); ; {
		began := after
		found, err := t.d.store.ReadWindow(ctx, persistence.WindowRead{After: after, Frontier: after, Limit: auditPage, WithoutPayload: true})
		if err != nil {
			return err
		}
		var page []*entry
		var others []persistence.Marker
		for _, r := range found.Records {
			if after = r.Cursor(); after.Compare(low) > 0 || !r.CreatedTime.Before(bucket.Add(persistence.BucketWidth)) {
				break
			}
			total.add(r.CreatedTime)
			e := t.entryFor(r, func(*served) bool { return true })
			e.found = f
			page = append(page, e)
			others = append(others, absent.markers(r)...)
		}
		if err := t.skipApplied(ctx, page); err != nil {
			return err
		}
		applied, err := t.d.idempotency.Applied(ctx, others...)
		if err != nil {
			return err
		}
		elsewhere = elsewhere || slices.Contains(applied, false)
		read := len(page)
		page = slices.DeleteFunc(page, func(e *entry) bool { return len(e.pending) == 0 })
		if err := t.readPayloads(ctx, began, page); err != nil {
			return err
		}
		if unapplied = append(unapplied, page...); read < auditPage {
			break
		}
	}
	if expected.agrees(total) {
		return nil // it was stamped like the last event, and has not been passed yet
	}
	f.more = total.minus(expected)
	f.left = len(unapplied)
	missed := max(f.more.rows, int64(f.left))
	if elsewhere {
		f.left++ // so it is not counted, and whoever has the handler finds it again
	}
	if gone := int64(len(unapplied)) - f.more.rows; gone > 0 && expected.offsets.Rows == expected.rows {
		t.d.log.LogAttrs(ctx, slog.LevelWarn, "outbox: events are gone", slog.String("dispatcher", t.d.name),
			slog.Time("bucket", bucket), slog.Int64("events", gone))
	}
	if missed > 0 {
		t.d.lateEvents.Add(missed)
		t.d.log.LogAttrs(ctx, slog.LevelError, "outbox: late events found", slog.String("dispatcher", t.d.name),
			slog.Time("bucket", bucket), slog.Int64("events", missed), slog.Int("delivered", len(unapplied)))
		tell(t.d, ofLateEvents, LateInfo{Dispatcher: t.d.name, Bucket: bucket, Events: missed})
	}
	t.tally.find(f, stored)
	t.lanes.add(unapplied...)
	return nil
}

// readPayloads reads the payloads of entries, in order, of the page after a
// position. Most of what an audit reads again has been applied, and needs none.
func (t *term) readPayloads(ctx context.Context, after persistence.Cursor, entries []*entry) error {
	for len(entries) > 0 {
		find := func(c persistence.Cursor) (int, bool) {
			return slices.BinarySearchFunc(entries, c, func(e *entry, c persistence.Cursor) int { return e.at.Compare(c) })
		}
		page, err := t.d.store.ReadWindow(ctx, persistence.WindowRead{
			After: after, Frontier: entries[len(entries)-1].at, KnownCount: auditPage, LateLimit: auditPage, MaxBytes: t.d.windowBytes,
			Known: func(c persistence.Cursor) bool {
				_, wanted := find(c)
				return !wanted
			},
		})
		if err != nil {
			return err
		}
		if len(page.Records) == 0 {
			return fmt.Errorf("event %s is gone, or many others are new beside it", entries[0].at)
		}
		for _, r := range page.Records {
			if i, wanted := find(r.Cursor()); wanted {
				entries[i].record.Payload = r.Payload
			}
		}
		last := page.Records[len(page.Records)-1].Cursor()
		n, _ := find(last)
		after, entries = last, entries[n+1:]
	}
	return nil
}
