package memstore

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/onward-go/outbox/persistence"
)

// Save implements [persistence.OutboxCursorStore].
func (s *Store) Save(ctx context.Context, lease persistence.Lease, progress persistence.Progress) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	c, err := s.fenced(lease)
	if err != nil {
		return err
	}
	if progress.Cursor.Compare(c.cursor) >= 0 {
		c.cursor, c.count, c.offsets = progress.Cursor, progress.Count, progress.Offsets
	}
	for _, key := range progress.CaughtUp {
		if sub, ok := s.subscriptions[key]; ok && sub.Dispatcher == lease.Dispatcher {
			sub.CatchUp(progress.Cursor, c.cursor)
		}
	}
	for _, bucket := range progress.Counts {
		c.counts[bucket.Start.UnixMicro()] = bucket
	}
	for _, m := range progress.Settled {
		delete(c.attempts, m.Key())
	}
	return nil
}

// Counts implements [persistence.OutboxCursorStore].
func (s *Store) Counts(ctx context.Context, dispatcher string, from, to time.Time) ([]persistence.Bucket, error) {
	if err := s.lock(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	c, ok := s.sidecars[dispatcher]
	if !ok {
		return nil, nil
	}
	var buckets []persistence.Bucket
	for _, micros := range slices.Sorted(maps.Keys(c.counts)) {
		start := time.UnixMicro(micros)
		if !start.Before(from) && start.Before(to) {
			buckets = append(buckets, c.counts[micros])
		}
	}
	return buckets, nil
}

// RecordFailure implements [persistence.OutboxCursorStore].
func (s *Store) RecordFailure(ctx context.Context, lease persistence.Lease, failure persistence.Failure) (persistence.Attempt, error) {
	if err := s.lock(ctx); err != nil {
		return persistence.Attempt{}, err
	}
	defer s.mu.Unlock()
	c, err := s.fenced(lease)
	if err != nil {
		return persistence.Attempt{}, err
	}
	key := persistence.Marker{Event: failure.Event, Handler: failure.Handler}.Key()
	attempt := persistence.Attempt{
		Event:     failure.Event,
		Handler:   failure.Handler,
		Attempts:  c.attempts[key].Attempts + failure.Number(),
		LastError: failure.Error,
		NextTime:  now().Add(failure.RetryAfter),
	}
	c.attempts[key] = attempt
	return attempt, nil
}
