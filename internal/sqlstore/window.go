package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/onward-go/outbox/persistence"
)

// ReadWindow implements persistence.OutboxStore.
func (s *Store) ReadWindow(ctx context.Context, read persistence.WindowRead) ([]persistence.Record, error) {
	if err := persistence.CheckLimit(read.Limit); err != nil {
		return nil, err
	}
	conn, err := s.pool(ctx, reading)
	if err != nil {
		return nil, err
	}
	records, err := s.readWindow(ctx, conn, read)
	return records, s.failed(err, "read the window after %s", read.After)
}

func (s *Store) readWindow(ctx context.Context, conn Conn, read persistence.WindowRead) ([]persistence.Record, error) {
	// From one time to the same there is nothing that a number would save.
	if !read.Counted.CreatedTime.After(read.After.CreatedTime) || read.Counted.Compare(read.Edge()) > 0 {
		read = uncounted(read)
	}
	late, found, err := s.readSnapshot(ctx, conn, read)
	if err != nil {
		return nil, err
	}
	var missed []persistence.Record
	if s.tornViews.Load() {
		if missed, err = s.readMissed(ctx, conn, read, late, found); err != nil {
			return nil, err
		}
	}
	// Rows never change, so their rest may come from a later snapshot.
	rows, err := s.readKeys(ctx, conn, append(late, missed...))
	if err != nil {
		return nil, err
	}
	records := sorted(append(rows, found...))
	if len(missed) > 0 {
		records = mend(records, missed, read)
	}
	return records, nil
}

// uncounted asks for positions alone.
func uncounted(read persistence.WindowRead) persistence.WindowRead {
	read.Counted, read.Count, read.Holdouts, read.CountHeld = read.After, 0, persistence.Holdouts{}, 0
	return read
}

var errEnough = errors.New("enough")

// readSnapshot returns the keys of what is late and whole rows of what is new,
// all as one statement sees it. The usual statement counts most of what the
// caller knows. If that has grown, nothing of it is of use: another one looks at
// every key.
func (s *Store) readSnapshot(ctx context.Context, conn Conn, read persistence.WindowRead) (late, found []persistence.Record, err error) {
	late, found, count, err := s.readStatement(ctx, conn, read)
	if err == nil && count != int64(read.Count) {
		read = uncounted(read)
		late, found, _, err = s.readStatement(ctx, conn, read)
	}
	return late, found, err
}

// heldBack, in place of an event type, says that what lies before
// Holdouts.Beyond is left out of the number, since the holdouts are open.
const heldBack = "held"

func (s *Store) readStatement(ctx context.Context, conn Conn, read persistence.WindowRead) (late, found []persistence.Record, count int64, err error) {
	size, counted, edge := 0, read.Counted, read.Edge()
	args := []any{s.at(read.After.CreatedTime), read.After.ID, s.at(counted.CreatedTime), counted.ID,
		s.at(edge.CreatedTime), edge.ID, read.Limit}
	if s.cfg.Dialect.namesHoldouts {
		args = append(args, s.at(read.Holdouts.Beyond), strings.Join(read.Holdouts.Transactions, ","))
	}
	err = s.readRows(ctx, conn, anyServer, s.sql.ReadWindow, args, func(r persistence.Record) error {
		switch {
		case r.CreatedTime.IsZero():
			count, err = strconv.ParseInt(r.ID, 10, 64)
			if r.EventType == heldBack {
				count += int64(read.CountHeld)
			}
			return err
		case r.EventType == "": // a key, up to the frontier
			if read.Known == nil || !read.Known(r.Cursor()) {
				late = append(late, r)
			}
			return nil
		case read.MaxBytes > 0 && size >= read.MaxBytes:
			return errEnough
		}
		found = append(found, r)
		size += len(r.Payload)
		return nil
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return late, found, count, err
}

func (s *Store) readKeys(ctx context.Context, conn Conn, keys []persistence.Record) ([]persistence.Record, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	markers := make([]persistence.Marker, len(keys))
	for i, k := range keys {
		markers[i].Event = k.Cursor()
	}
	arg, err := encodeMarkers(markers)
	if err != nil {
		return nil, err
	}
	var found []persistence.Record
	err = s.readRows(ctx, conn, anyServer, s.sql.ReadKeys, []any{arg}, func(r persistence.Record) error {
		found = append(found, r)
		return nil
	})
	if err == nil && len(found) != len(keys) {
		err = fmt.Errorf("%d of %d late events are gone", len(keys)-len(found), len(keys))
	}
	return found, err
}
