package memstore

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/onward-go/outbox/persistence"
)

// AddDeadLetter implements [persistence.OutboxCursorStore].
func (s *Store) AddDeadLetter(ctx context.Context, lease persistence.Lease, letter persistence.DeadLetter) error {
	if _, err := s.current(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	_, err := s.fenced(lease)
	s.mu.Unlock()
	if err != nil {
		return err
	}
	letter.DeadTime = now()
	letter.Dispatcher = lease.Dispatcher
	letter.Record.Payload = bytes.Clone(letter.Record.Payload)
	return s.letters.Update(ctx, letter.Marker().Key(), func(old persistence.DeadLetter, exists bool) (persistence.DeadLetter, error) {
		if exists {
			return old, nil
		}
		return letter, nil
	})
}

// ListDeadLetters implements [persistence.DeadLetterStore].
func (s *Store) ListDeadLetters(ctx context.Context, query persistence.DeadLetterQuery) ([]persistence.DeadLetter, error) {
	if err := persistence.CheckLimit(query.Limit); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	var found []persistence.DeadLetter
	for letter := range maps.Values(s.letters.All(persistence.Detach(ctx))) {
		if compareMarkers(letter.Marker(), query.After) > 0 && isSelected(query, letter) {
			found = append(found, letter)
		}
	}
	slices.SortFunc(found, func(a, b persistence.DeadLetter) int { return compareMarkers(a.Marker(), b.Marker()) })
	found = found[:min(len(found), query.Limit)]
	for i := range found {
		payload := &found[i].Record.Payload
		if *payload = bytes.Clone(*payload); query.WithoutPayload {
			*payload = nil
		}
	}
	return found, nil
}

func isSelected(query persistence.DeadLetterQuery, letter persistence.DeadLetter) bool {
	r := letter.Record
	return selects(string(query.State), string(letter.State)) &&
		selects(query.Dispatcher, letter.Dispatcher) &&
		selects(query.Handler, letter.Handler) &&
		selects(query.EventID, r.ID) &&
		selects(query.EventType, r.EventType) &&
		selects(query.AccountID, r.AccountID) &&
		selects(query.AggregateType, r.AggregateType) &&
		selects(query.AggregateID, r.AggregateID)
}

func selects(want, got string) bool { return want == "" || want == got }

func compareMarkers(a, b persistence.Marker) int {
	return cmp.Or(a.Event.Compare(b.Event), strings.Compare(a.Handler, b.Handler))
}

// GetDeadLetter implements [persistence.DeadLetterStore].
func (s *Store) GetDeadLetter(ctx context.Context, letter persistence.Marker) (persistence.DeadLetter, error) {
	if err := ctx.Err(); err != nil {
		return persistence.DeadLetter{}, context.Cause(ctx)
	}
	found, exists := s.letters.Get(persistence.Detach(ctx), letter.Key())
	if !exists {
		return persistence.DeadLetter{}, fmt.Errorf("memstore: dead letter of event %s, handler %q: %w", letter.Event, letter.Handler, persistence.ErrNotFound)
	}
	found.Record.Payload = bytes.Clone(found.Record.Payload)
	return found, nil
}

// MoveDeadLetter implements [persistence.DeadLetterStore].
func (s *Store) MoveDeadLetter(ctx context.Context, move persistence.DeadLetterMove) error {
	return s.letters.Update(ctx, move.Letter.Key(), func(l persistence.DeadLetter, exists bool) (persistence.DeadLetter, error) {
		if !exists || l.State != move.From {
			return l, fmt.Errorf("memstore: %s dead letter of event %s, handler %q: %w", move.From, move.Letter.Event, move.Letter.Handler, persistence.ErrNotFound)
		}
		l.State = move.To
		l.Attempts += move.Attempts
		l.LastError = cmp.Or(move.LastError, l.LastError)
		return l, nil
	})
}

// PurgeDeadLetters implements [persistence.DeadLetterStore].
func (s *Store) PurgeDeadLetters(ctx context.Context, before time.Time, limit int) (int, error) {
	if err := persistence.CheckLimit(limit); err != nil {
		return 0, err
	}
	purged := 0
	err := s.Atomically(persistence.Detach(ctx), func(ctx context.Context) error {
		for key, letter := range s.letters.All(ctx) {
			settled := letter.State == persistence.DeadLetterReplayed || letter.State == persistence.DeadLetterDiscarded
			if !settled || !letter.DeadTime.Before(before) {
				continue
			}
			if purged == limit {
				return nil
			}
			if err := s.letters.Delete(ctx, key); err != nil {
				return err
			}
			purged++
		}
		return nil
	})
	return purged, err
}
