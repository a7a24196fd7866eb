package sqlstore

import (
	"context"

	"github.com/onward-go/outbox/persistence"
)

// FindRecords implements persistence.OutboxInspector. The first statement counts
// up to MostRows keys and tells where they end, so that the other one, which
// selects, reads no row beyond.
func (s *Store) FindRecords(ctx context.Context, query persistence.RecordQuery) (page persistence.RecordPage, err error) {
	if err := query.Check(); err != nil {
		return page, err
	}
	conn, err := s.pool(ctx, reading)
	if err != nil {
		return page, err
	}
	page, err = s.findRecords(ctx, conn, query)
	return page, s.failed(err, "find records after %s", query.After)
}

func (s *Store) findRecords(ctx context.Context, conn Conn, q persistence.RecordQuery) (page persistence.RecordPage, err error) {
	// Half-open, so that each end serves both ways.
	from, to := following(q.After), q.Before
	if to.IsZero() {
		to = persistence.Cursor{CreatedTime: endOfTime}
	}
	most := q.MostRows
	if q.Unfiltered() {
		most = min(most, q.Limit)
	}
	measure, sel := s.sql.EndOfRange, s.sql.SelectRecords
	if q.Backwards {
		measure, sel = s.sql.StartOfRange, s.sql.SelectRecordsBack
	}
	args := []any{s.at(from.CreatedTime), from.ID, s.at(to.CreatedTime), to.ID, most}
	err = conn.Query(ctx, measure, args, func(scan func(...any) error) error {
		return scan(&page.Looked, timestamp{&page.Next.CreatedTime}, &page.Next.ID)
	})
	if err != nil || page.Looked == 0 {
		return page, err
	}
	switch page.More = page.Looked >= most; {
	case page.More && q.Backwards:
		from = page.Next
	case page.More:
		to = following(page.Next)
	}
	args = []any{s.at(from.CreatedTime), from.ID, s.at(to.CreatedTime), to.ID,
		q.ID, q.EventType, q.AccountID, q.AggregateType, q.AggregateID, q.WithoutPayload, q.Limit}
	err = conn.Query(ctx, sel, args, func(scan func(...any) error) error {
		var r persistence.Record
		err := scan(timestamp{&r.CreatedTime}, &r.ID, &r.AccountID, &r.AggregateType, &r.AggregateID, &r.EventType, &r.Payload)
		page.Records = append(page.Records, r)
		return err
	})
	if n := len(page.Records); n >= q.Limit {
		page.More, page.Next = true, page.Records[n-1].Cursor()
	}
	return page, err
}

// following returns the first position that a record after the given one may
// have: no character of an id comes before the exclamation mark.
func following(c persistence.Cursor) persistence.Cursor {
	if c.ID != "" {
		c.ID += "!"
	}
	return c
}

// AppliedHandlers implements persistence.OutboxInspector.
func (s *Store) AppliedHandlers(ctx context.Context, event persistence.Cursor) (handlers []string, err error) {
	conn, err := s.pool(ctx, reading)
	if err != nil {
		return nil, err
	}
	err = conn.Query(ctx, s.sql.AppliedHandlers, []any{s.at(event.CreatedTime), event.ID}, func(scan func(...any) error) error {
		var handler string
		err := scan(&handler)
		handlers = append(handlers, handler)
		return err
	})
	return handlers, s.failed(err, "read the markers of event %s", event)
}

// Failures implements persistence.OutboxInspector.
func (s *Store) Failures(ctx context.Context, dispatcher string, event persistence.Cursor) (failures []persistence.Attempt, err error) {
	conn, err := s.pool(ctx, reading)
	if err != nil {
		return nil, err
	}
	err = conn.Query(ctx, s.sql.LoadFailures, []any{dispatcher, s.at(event.CreatedTime), event.ID}, func(scan func(...any) error) error {
		a, err := scanAttempt(scan)
		failures = append(failures, a)
		return err
	})
	return failures, s.failed(err, "read the failures of dispatcher %q on event %s", dispatcher, event)
}
