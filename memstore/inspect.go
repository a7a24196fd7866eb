package memstore

import (
	"bytes"
	"context"
	"slices"
	"strings"

	"github.com/onward-go/outbox/persistence"
)

// FindRecords implements [persistence.OutboxInspector].
func (s *Store) FindRecords(ctx context.Context, query persistence.RecordQuery) (persistence.RecordPage, error) {
	var page persistence.RecordPage
	if err := query.Check(); err != nil {
		return page, err
	}
	if err := s.lock(ctx); err != nil {
		return page, err
	}
	defer s.mu.Unlock()
	inRange := s.rows[s.search(query.After):]
	if !query.Before.IsZero() {
		end, _ := slices.BinarySearchFunc(inRange, query.Before, func(r persistence.Record, before persistence.Cursor) int {
			return r.Cursor().Compare(before)
		})
		inRange = inRange[:end]
	}
	for i := range inRange {
		r := inRange[i]
		if query.Backwards {
			r = inRange[len(inRange)-1-i]
		}
		page.Looked++
		page.Next = r.Cursor()
		if query.Selects(r) {
			if r.Payload = bytes.Clone(r.Payload); query.WithoutPayload {
				r.Payload = nil
			}
			page.Records = append(page.Records, r)
		}
		if page.More = page.Looked == query.MostRows || len(page.Records) == query.Limit; page.More {
			break
		}
	}
	return page, nil
}

// AppliedHandlers implements [persistence.OutboxInspector].
func (s *Store) AppliedHandlers(ctx context.Context, event persistence.Cursor) ([]string, error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	var handlers []string
	for m := range s.markers.All(persistence.Detach(ctx)) {
		if m.Event.Compare(event) == 0 {
			handlers = append(handlers, m.Handler)
		}
	}
	slices.Sort(handlers)
	return handlers, nil
}

// Failures implements [persistence.OutboxInspector].
func (s *Store) Failures(ctx context.Context, dispatcher string, event persistence.Cursor) ([]persistence.Attempt, error) {
	if err := s.lock(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	var failures []persistence.Attempt
	if c, ok := s.sidecars[dispatcher]; ok {
		for _, a := range c.attempts {
			if a.Event.Compare(event) == 0 {
				failures = append(failures, a)
			}
		}
	}
	slices.SortFunc(failures, func(a, b persistence.Attempt) int { return strings.Compare(a.Handler, b.Handler) })
	return failures, nil
}
