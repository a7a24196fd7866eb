package sqlstore

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/onward-go/outbox/persistence"
)

// Append implements persistence.OutboxStore.
func (s *Store) Append(ctx context.Context, records ...persistence.Record) error {
	conn, err := s.tx(ctx)
	if err != nil {
		return err
	}
	if err := persistence.Validate(s.table, s.cfg.MaxPayload, records...); err != nil {
		return err
	}
	if len(records) == 0 {
		return nil
	}
	n, err := s.insert(ctx, conn, records)
	switch {
	case err != nil:
		return s.failed(err, "append %s", eventsOf(records))
	case n != int64(len(records)):
		return fmt.Errorf("outbox table %s: the server wrote %d rows of %s: roll the transaction back", s.table, n, eventsOf(records))
	}
	return nil
}

// eventsOf names the events that are appended, for messages.
func eventsOf(records []persistence.Record) string {
	if len(records) == 1 {
		return "event " + records[0].ID
	}
	return fmt.Sprintf("%d events, first %s", len(records), records[0].ID)
}

// insert is one statement. The usual single record is spared the JSON.
func (s *Store) insert(ctx context.Context, conn Conn, records []persistence.Record) (int64, error) {
	if len(records) == 1 {
		r := records[0]
		return conn.Exec(ctx, s.sql.AppendRecord, r.ID, r.AccountID, r.AggregateType, r.AggregateID, r.EventType, notNull(r.Payload))
	}
	keys, payloads, err := encodeRecords(records)
	if err != nil {
		return 0, err
	}
	return conn.Exec(ctx, s.sql.AppendRecords, keys, payloads)
}

// ReadAfter implements persistence.OutboxStore.
func (s *Store) ReadAfter(ctx context.Context, after persistence.Cursor, limit int) ([]persistence.Record, error) {
	if err := persistence.CheckLimit(limit); err != nil {
		return nil, err
	}
	conn, err := s.pool(ctx, reading)
	if err != nil {
		return nil, err
	}
	// The mark comes first, and in a statement of its own.
	m, err := s.safeMark(ctx, conn)
	if err != nil {
		return nil, s.failed(err, "read after %s", after)
	}
	if !m.Time.After(after.CreatedTime) {
		return nil, nil
	}
	var found []persistence.Record
	args := []any{s.at(after.CreatedTime), after.ID, s.at(m.Time), limit}
	err = s.readRows(ctx, conn, m.server, s.sql.ReadAfter, args, func(r persistence.Record) error {
		found = append(found, r)
		return nil
	})
	if err != nil {
		return nil, s.failed(err, "read after %s", after)
	}
	return sorted(found), nil
}

// anyServer asks for no particular server, though still for a primary.
const anyServer = -1

// hidesRows, in place of a server, says that the user may not see all rows.
const hidesRows = -2

// readRows reads records. The first column of each row names the server, 0 a
// standby; a row without an id stands for no row.
func (s *Store) readRows(ctx context.Context, conn Conn, server int64, query string, args []any, row func(persistence.Record) error) error {
	return conn.Query(ctx, query, args, func(scan func(...any) error) error {
		var r persistence.Record
		var from int64
		err := scan(&from, timestamp{&r.CreatedTime}, &r.ID, &r.AccountID, &r.AggregateType, &r.AggregateID, &r.EventType, &r.Payload)
		switch {
		case err != nil:
			return err
		case from == 0:
			return fmt.Errorf("%w: a standby answered; connect to the primary", persistence.ErrNotPrimary)
		case from == hidesRows:
			return rowSecurity(s.table, "")
		case server != anyServer && from != server:
			return fmt.Errorf("%w: safe mark and rows came from different servers; connect to the primary, not through a proxy that splits reads", persistence.ErrNotPrimary)
		case r.ID == "":
			return nil
		}
		return row(r)
	})
}

func sorted(records []persistence.Record) []persistence.Record {
	slices.SortFunc(records, func(a, b persistence.Record) int { return a.Cursor().Compare(b.Cursor()) })
	return records
}

// SafeMark implements persistence.OutboxStore.
func (s *Store) SafeMark(ctx context.Context) (persistence.SafeMark, error) {
	conn, err := s.pool(ctx, reading)
	if err != nil {
		return persistence.SafeMark{}, err
	}
	m, err := s.safeMark(ctx, conn)
	return m.SafeMark, s.failed(err, "safe mark")
}

func (s *Store) safeMark(ctx context.Context, conn Conn) (mark, error) {
	m, err := s.mark(ctx, conn, &s.sql)
	if err == nil && m.server == 0 {
		err = fmt.Errorf("%w: what producers hold open is not visible on a standby; connect to the primary", persistence.ErrNotPrimary)
	}
	if err != nil {
		return mark{}, fmt.Errorf("read the safe mark: %w", err)
	}
	return m, nil
}

// CountRows implements persistence.OutboxStore.
func (s *Store) CountRows(ctx context.Context, from, to time.Time) ([]persistence.Bucket, error) {
	conn, err := s.pool(ctx, reading)
	if err != nil {
		return nil, err
	}
	var buckets []persistence.Bucket
	err = conn.Query(ctx, s.sql.CountRows, []any{s.at(from), s.at(to), persistence.BucketWidth.Microseconds()}, func(scan func(...any) error) error {
		var b persistence.Bucket
		err := scan(timestamp{&b.Start}, &b.Rows, &b.Offsets.Micros)
		b.Offsets.Rows = b.Rows
		buckets = append(buckets, b)
		return err
	})
	return buckets, s.failed(err, "count rows")
}
