package memstore

import (
	"bytes"
	"context"
	"slices"
	"sort"
	"time"

	"github.com/onward-go/outbox/persistence"
)

const tableName = "in memory"

// Append implements [persistence.OutboxStore].
func (s *Store) Append(ctx context.Context, records ...persistence.Record) error {
	t, err := s.current(ctx)
	if err != nil {
		return err
	}
	if s.invalid != nil {
		return s.invalid
	}
	if err := persistence.Validate(tableName, s.maxPayload, records...); err != nil {
		return err
	}
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	if t.cause != nil {
		return t.cause
	}
	before := len(t.events)
	t.undo = append(t.undo, func() { t.events = t.events[:before] })
	for _, r := range records {
		r.Payload = bytes.Clone(r.Payload)
		t.events = append(t.events, r)
	}
	return nil
}

// publish stamps records and makes them visible. Stamping at commit, under the
// store's mutex, makes the order of stamps that of visibility, so everything
// visible is below the safe mark.
func (s *Store) publish(records []persistence.Record) {
	for _, r := range records {
		s.lastStamp = max(now().UnixMicro(), s.lastStamp+1)
		r.CreatedTime = time.UnixMicro(s.lastStamp).UTC()
		s.rows = append(s.rows, r)
	}
}

// Insert commits a record past the library, as somebody with access to a table
// might: with its CreatedTime, wherever that is, or stamped if it has none. For
// tests.
func (s *Store) Insert(ctx context.Context, record persistence.Record) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	record.Payload = bytes.Clone(record.Payload)
	if record.CreatedTime.IsZero() {
		s.publish([]persistence.Record{record})
		return nil
	}
	s.lastStamp = max(s.lastStamp, record.CreatedTime.UnixMicro())
	s.rows = slices.Insert(s.rows, s.search(record.Cursor()), record)
	return nil
}

// Delete takes a committed record away past the library, as somebody with access to a
// table might. For tests.
func (s *Store) Delete(ctx context.Context, event persistence.Cursor) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	s.rows = slices.DeleteFunc(s.rows, func(r persistence.Record) bool { return r.Cursor() == event })
	return nil
}

// ReadAfter implements [persistence.OutboxStore].
func (s *Store) ReadAfter(ctx context.Context, after persistence.Cursor, limit int) ([]persistence.Record, error) {
	if err := persistence.CheckLimit(limit); err != nil {
		return nil, err
	}
	page, err := s.ReadWindow(ctx, persistence.WindowRead{After: after, Frontier: after, Limit: limit})
	return page.Records, err
}

// ReadWindow implements [persistence.OutboxStore].
func (s *Store) ReadWindow(ctx context.Context, read persistence.WindowRead) (persistence.WindowPage, error) {
	if err := read.Check(); err != nil {
		return persistence.WindowPage{}, err
	}
	if err := s.lock(ctx); err != nil {
		return persistence.WindowPage{}, err
	}
	defer s.mu.Unlock()
	return read.Page(now(), slices.Values(s.rows[s.search(read.After):])), nil
}

// search returns the index of the first row after the cursor.
func (s *Store) search(after persistence.Cursor) int {
	return sort.Search(len(s.rows), func(i int) bool { return s.rows[i].Cursor().Compare(after) > 0 })
}

// SafeMark implements [persistence.OutboxStore].
func (s *Store) SafeMark(ctx context.Context) (persistence.SafeMark, error) {
	if err := s.lock(ctx); err != nil {
		return persistence.SafeMark{}, err
	}
	defer s.mu.Unlock()
	return persistence.SafeMark{Time: time.UnixMicro(s.lastStamp + 1).UTC(), Now: now()}, nil
}

// CountRows implements [persistence.OutboxStore].
func (s *Store) CountRows(ctx context.Context, from, to time.Time) ([]persistence.Bucket, error) {
	if err := s.lock(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	var buckets []persistence.Bucket
	for _, r := range s.rows[s.search(persistence.Cursor{CreatedTime: from}):] {
		if !r.CreatedTime.Before(to) {
			break
		}
		start := persistence.BucketStart(r.CreatedTime)
		if n := len(buckets); n == 0 || !buckets[n-1].Start.Equal(start) {
			buckets = append(buckets, persistence.Bucket{Start: start})
		}
		last := &buckets[len(buckets)-1]
		last.Rows++
		last.Offsets.Add(r.CreatedTime)
	}
	return buckets, nil
}
