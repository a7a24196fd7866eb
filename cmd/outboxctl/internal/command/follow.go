package command

import (
	"context"
	"time"

	"github.com/onward-go/outbox/persistence"
)

const (
	// followed is how many events are read at a time.
	followed = 500
	// followedBytes bounds their payloads.
	followedBytes = 16 << 20
	// lateness is how much earlier than the last event one may be stamped that
	// shows up after following has begun.
	lateness = time.Minute
)

// follower reads as a dispatcher does: what is late shows late, and nothing is
// passed by. It remembers what it has read beyond the safe mark, before which
// nothing can appear any more.
type follower struct {
	outbox connection
	read   persistence.WindowRead
	known  map[persistence.Cursor]bool
}

// follow lists the latest events, or those since a time, then what becomes visible,
// until it is interrupted.
func (a *app) follow(ctx context.Context, outbox connection, t *tail) error {
	f := &follower{outbox: outbox, known: map[persistence.Cursor]bool{}}
	f.read = persistence.WindowRead{Limit: followed, LateLimit: followed, MaxBytes: followedBytes, Known: func(c persistence.Cursor) bool { return f.known[c] }}
	err := a.begin(ctx, f, t)
	for err == nil {
		var records []persistence.Record
		var more bool
		if records, more, err = f.next(ctx); err != nil {
			break
		}
		if err = a.list(t, t.selected(records), false, false); err != nil || more {
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(t.every):
		}
	}
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// begin lists what there is, unless all of it is to be followed from a time on.
func (a *app) begin(ctx context.Context, f *follower, t *tail) error {
	if t.since.set {
		mark, err := f.outbox.SafeMark(ctx)
		f.start(persistence.Cursor{CreatedTime: t.since.time(mark.Now)})
		return err
	}
	last, err := f.outbox.FindRecords(ctx, persistence.RecordQuery{Backwards: true, WithoutPayload: true, Limit: 1, MostRows: 1})
	if err != nil {
		return err
	}
	if len(last.Records) > 0 {
		f.start(persistence.Cursor{CreatedTime: last.Records[0].CreatedTime.Add(-lateness)})
	}
	// What can be seen now is known, and then a part of it is listed.
	f.read.WithoutPayload = true
	for more := true; more; {
		if _, more, err = f.next(ctx); err != nil {
			return err
		}
	}
	f.read.WithoutPayload = false
	page, err := t.page(ctx, f.outbox)
	if err != nil {
		return err
	}
	for _, r := range page.Records {
		f.known[r.Cursor()] = true
	}
	return a.list(t, page.Records, len(page.Records) > 0, false)
}

func (f *follower) start(after persistence.Cursor) { f.read.After, f.read.Frontier = after, after }

// next returns a page of what has become visible, and whether there may be more.
func (f *follower) next(ctx context.Context) (fresh []persistence.Record, more bool, err error) {
	mark, err := f.outbox.SafeMark(ctx)
	if err != nil {
		return nil, false, err
	}
	f.read.KnownCount = len(f.known)
	page, err := f.outbox.ReadWindow(ctx, f.read)
	if err != nil {
		return nil, false, err
	}
	for _, r := range page.Records {
		if !f.known[r.Cursor()] {
			fresh = append(fresh, r)
		}
		f.known[r.Cursor()] = true
		if r.Cursor().Compare(f.read.Frontier) > 0 {
			f.read.Frontier = r.Cursor()
		}
	}
	f.settle(mark.Time, page.Complete)
	return fresh, page.More, nil
}

// settle forgets what lies before the mark, up to where all has been read.
func (f *follower) settle(mark time.Time, complete persistence.Cursor) {
	for c := range f.known {
		if c.CreatedTime.Before(mark) && c.Compare(complete) <= 0 && c.Compare(f.read.After) > 0 {
			f.read.After = c
		}
	}
	for c := range f.known {
		if c.Compare(f.read.After) <= 0 {
			delete(f.known, c)
		}
	}
}

// selected returns the records that the flags select.
func (t *tail) selected(records []persistence.Record) []persistence.Record {
	var selected []persistence.Record
	for _, r := range records {
		if t.query.Selects(r) {
			selected = append(selected, r)
		}
	}
	return selected
}
