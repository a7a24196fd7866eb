package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/onward-go/outbox/persistence"
)

// ReadWindow implements persistence.OutboxStore.
func (s *Store) ReadWindow(ctx context.Context, read persistence.WindowRead) (persistence.WindowPage, error) {
	if err := read.Check(); err != nil {
		return persistence.WindowPage{}, err
	}
	conn, err := s.pool(ctx, reading)
	if err != nil {
		return persistence.WindowPage{}, err
	}
	read.LateLimit = min(read.LateLimit, mostKeys)
	if read.MaxBytes == 0 || read.WithoutPayload {
		read.MaxBytes = math.MaxInt
	}
	page, err := s.readWindow(ctx, conn, read)
	if err != nil {
		return persistence.WindowPage{}, s.failed(err, "read the window after %s", read.After)
	}
	return page, nil
}

func (s *Store) readWindow(ctx context.Context, conn Conn, read persistence.WindowRead) (persistence.WindowPage, error) {
	// From one time to the same there is nothing that a number would save.
	if !read.Counted.CreatedTime.After(read.After.CreatedTime) || read.Counted.Compare(read.Edge()) > 0 {
		read = uncounted(read)
	}
	view, err := s.readSnapshot(ctx, conn, read)
	if err != nil {
		return persistence.WindowPage{}, err
	}
	missed := map[persistence.Cursor]bool{}
	if s.tornViews.Load() {
		if err := s.readMissed(ctx, conn, read, view, missed); err != nil {
			return persistence.WindowPage{}, err
		}
	}
	// Rows never change, so their rest may come from a later snapshot.
	rows, err := s.readKeys(ctx, conn, view, read)
	if err != nil {
		return persistence.WindowPage{}, err
	}
	view.found = sorted(append(rows, view.found...))
	if len(missed) > 0 {
		view.mend(missed, read)
	}
	return persistence.WindowPage{Records: view.found, Complete: view.end, Now: view.now, More: view.more}, nil
}

// uncounted asks for positions alone.
func uncounted(read persistence.WindowRead) persistence.WindowRead {
	read.Counted, read.Count, read.Holdouts, read.CountHeld = read.After, 0, persistence.Holdouts{}, 0
	return read
}

// view is what one snapshot shows of a window, up to a position.
type view struct {
	late  []persistence.Cursor // the positions of what is late, in order
	found []persistence.Record // whole rows, in order
	end   persistence.Cursor
	more  bool // there may be something after the end
	now   time.Time

	count int64 // of the rows that were counted
	size  int   // of the payloads of found
}

// cut ends the view before a position.
func (v *view) cut(at persistence.Cursor) {
	v.endAt(at.Preceding())
}

// endAt ends the view at a position, unless it ends before it.
func (v *view) endAt(end persistence.Cursor) {
	v.more = true
	if end.Compare(v.end) >= 0 {
		return
	}
	v.end = end
	v.late = slices.DeleteFunc(v.late, func(c persistence.Cursor) bool { return c.Compare(end) > 0 })
	v.found = slices.DeleteFunc(v.found, func(r persistence.Record) bool { return r.Cursor().Compare(end) > 0 })
}

var errEnough = errors.New("enough")

// readSnapshot returns the keys of what is late and whole rows of what is new,
// all as one statement sees it. The usual statement counts most of what the
// caller knows. If that has grown, nothing of it is of use: another one looks at
// every key.
func (s *Store) readSnapshot(ctx context.Context, conn Conn, read persistence.WindowRead) (*view, error) {
	v, err := s.readStatement(ctx, conn, read)
	if err == nil && v.count != int64(read.Count) {
		v, err = s.readStatement(ctx, conn, uncounted(read))
	}
	return v, err
}

// heldBack, in place of an event type, says that what lies before
// Holdouts.Beyond is left out of the number, since the holdouts are open.
const heldBack = "held"

func (s *Store) readStatement(ctx context.Context, conn Conn, read persistence.WindowRead) (*view, error) {
	counted, edge := read.Counted, read.Edge()
	// So many keys that there is one too many among them, unless none is left out.
	keyLimit := max(0, read.KnownCount-read.Count) + read.LateLimit + 1
	args := []any{s.at(read.After.CreatedTime), read.After.ID, s.at(counted.CreatedTime), counted.ID,
		s.at(edge.CreatedTime), edge.ID, read.Limit, keyLimit}
	if s.cfg.Dialect.namesHoldouts {
		args = append(args, s.at(read.Holdouts.Beyond), strings.Join(read.Holdouts.Transactions, ","))
	}
	statement := s.sql.ReadWindow
	if read.WithoutPayload {
		statement = s.sql.ReadWindowHeads
	}
	v := &view{end: edge}
	keys, last := 0, persistence.Cursor{}
	err := s.readRows(ctx, conn, anyServer, statement, args, func(r persistence.Record) error {
		c := r.Cursor()
		switch {
		case r.CreatedTime.IsZero():
			return v.scanCount(r, read.CountHeld)
		case r.EventType == "": // a key, up to the frontier
			if keys++; c.Compare(last) > 0 {
				last = c
			}
			if read.Known == nil || !read.Known(c) {
				v.late = append(v.late, c)
			}
			return nil
		// Late rows have a half of the bytes.
		case len(v.late) > read.LateLimit, v.size >= read.MaxBytes, len(v.late) > 0 && v.size >= read.MaxBytes/2:
			v.more = true
			return errEnough
		}
		v.found = append(v.found, r)
		v.size += len(r.Payload)
		v.end = c
		return nil
	})
	if err != nil && !errors.Is(err, errEnough) {
		return nil, err
	}
	v.more = v.more || len(v.found) == read.Limit
	slices.SortFunc(v.late, persistence.Cursor.Compare)
	switch {
	case len(v.late) > read.LateLimit:
		v.cut(v.late[read.LateLimit])
	case keys == keyLimit: // the caller has more than he said
		v.endAt(last)
	}
	return v, nil
}

// scanCount reads the row that has a number in place of an id, and the clock in
// place of an account.
func (v *view) scanCount(r persistence.Record, held int) (err error) {
	if v.count, err = strconv.ParseInt(r.ID, 10, 64); err != nil {
		return err
	}
	if r.EventType == heldBack {
		v.count += int64(held)
	}
	micros, err := strconv.ParseInt(r.AccountID, 10, 64)
	v.now = time.UnixMicro(micros).UTC()
	return err
}

// readKeys returns the rows of what is late, in order, as many as the bytes allow.
// The view ends before the first that is left out.
func (s *Store) readKeys(ctx context.Context, conn Conn, v *view, read persistence.WindowRead) ([]persistence.Record, error) {
	if len(v.late) == 0 {
		return nil, nil
	}
	markers := make([]persistence.Marker, len(v.late))
	for i, c := range v.late {
		markers[i].Event = c
	}
	arg, err := encodeMarkers(markers)
	if err != nil {
		return nil, err
	}
	statement, most := s.sql.ReadKeys, max(1, read.MaxBytes-v.size)
	if read.WithoutPayload {
		statement = s.sql.ReadKeysHeads
	}
	var rows []persistence.Record
	size := 0
	err = s.readRows(ctx, conn, anyServer, statement, []any{arg, most}, func(r persistence.Record) error {
		rows = append(rows, r)
		size += len(r.Payload)
		return nil
	})
	if err != nil {
		return nil, err
	}
	for i, c := range v.late {
		switch {
		case i < len(rows) && rows[i].Cursor() == c:
		case i == len(rows) && size >= most:
			v.cut(c)
			return rows, nil
		default:
			return nil, fmt.Errorf("the late event %s is gone", c)
		}
	}
	return rows, nil
}
