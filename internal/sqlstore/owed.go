package sqlstore

import (
	"context"
	"fmt"
	"time"

	"github.com/onward-go/outbox/persistence"
)

// owed is the first event that somebody has not settled.
type owed struct {
	at  time.Time
	err error
}

// firstOwed returns the first event before the time that holds retention back,
// or nil. No event can appear before the time any more, which is the caller's
// part.
func (s *Store) firstOwed(ctx context.Context, conn Conn, before time.Time, options persistence.RetentionOptions) (*owed, error) {
	cursors, err := s.listCursors(ctx, conn)
	if err != nil {
		return nil, err
	}
	if len(cursors) == 0 && !options.NoConsumers {
		return &owed{err: fmt.Errorf("%w: no dispatcher has ever read this outbox; say NoConsumers if there is none", persistence.ErrOwed)}, nil
	}
	// After the cursors: whoever is left behind then is so at a position that
	// the cursor had not left before.
	subscriptions, err := s.listSubscriptions(ctx, conn)
	if err != nil {
		return nil, err
	}
	var first *owed
	look := func(after persistence.Cursor, problem func(event persistence.Cursor) error) error {
		event, found, err := s.nextEvent(ctx, conn, after, before)
		if err == nil && found && (first == nil || event.CreatedTime.Before(first.at)) {
			first = &owed{event.CreatedTime, problem(event)}
		}
		return err
	}
	for _, c := range cursors {
		// Not the cursor alone: one that is caught up stays at the last event,
		// however long ago that was.
		err := look(c.Cursor, func(event persistence.Cursor) error {
			return fmt.Errorf("%w: dispatcher %q has not settled event %s; run it, or forget it if it is no more", persistence.ErrOwed, c.Lease.Dispatcher, event)
		})
		if err != nil {
			return nil, err
		}
	}
	for _, sub := range subscriptions {
		if sub.Behind == nil {
			continue
		}
		// An event of any type: to look for one of its own would be to read all.
		err := look(*sub.Behind, func(event persistence.Cursor) error {
			return fmt.Errorf("%w: handler %q of event type %q, dispatcher %q, is behind and may not have seen event %s; deploy the handler again, or wait until it is forgotten",
				persistence.ErrOwed, sub.Handler, sub.EventType, sub.Dispatcher, event)
		})
		if err != nil {
			return nil, err
		}
	}
	return first, nil
}

// nextEvent returns the first event after the cursor and before the time.
func (s *Store) nextEvent(ctx context.Context, conn Conn, after persistence.Cursor, before time.Time) (event persistence.Cursor, found bool, err error) {
	args := []any{s.at(after.CreatedTime), after.ID, s.at(before)}
	err = conn.Query(ctx, s.sql.NextEvent, args, func(scan func(...any) error) error {
		found = true
		return scan(timestamp{&event.CreatedTime}, &event.ID)
	})
	return event, found, err
}

// horizon returns the latest time, up to the one given, before which no event
// can appear any more and no audit looks, and the database's clock. A new
// process may have to ask for the safe mark for a while, until it has seen the
// whole fence free.
func (s *Store) horizon(ctx context.Context, conn Conn, before time.Time) (limit, now time.Time, err error) {
	patience, cancel := context.WithTimeout(ctx, markPatience)
	defer cancel()
	for {
		m, err := s.safeMark(ctx, conn)
		if err != nil {
			return limit, now, err
		}
		limit = m.Now.Add(-persistence.AuditWindow)
		if before.Before(limit) {
			limit = before
		}
		if !m.Time.Before(limit) {
			return limit, m.Now, nil
		}
		select {
		case <-patience.Done():
			if ctx.Err() != nil {
				return limit, now, context.Cause(ctx)
			}
			return limit, now, fmt.Errorf("%w: a producer's transaction has been open for longer than retention waits; it may still write events that are due", persistence.ErrLockTimeout)
		case <-time.After(markPause):
		}
	}
}

const (
	markPatience = 10 * time.Second // the fence comes round in less
	markPause    = 60 * time.Millisecond
)
