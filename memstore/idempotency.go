package memstore

import (
	"context"
	"fmt"

	"github.com/onward-go/outbox/persistence"
)

// Record implements [persistence.IdempotencyStore].
func (s *Store) Record(ctx context.Context, markers ...persistence.Marker) ([]bool, error) {
	recorded := make([]bool, len(markers))
	for i, m := range markers {
		if err := persistence.CheckMarker(m); err != nil {
			return nil, err
		}
		// The row's lock is what a racing twin waits for.
		err := s.markers.Update(ctx, m.Key(), func(_ struct{}, exists bool) (struct{}, error) {
			recorded[i] = !exists
			return struct{}{}, nil
		})
		if err != nil {
			return nil, err
		}
	}
	return recorded, nil
}

// RecordNew implements [persistence.IdempotencyStore].
func (s *Store) RecordNew(ctx context.Context, marker persistence.Marker) error {
	recorded, err := s.Record(ctx, marker)
	if err == nil && !recorded[0] {
		return fmt.Errorf("event %s, handler %q: %w", marker.Event, marker.Handler, persistence.ErrApplied)
	}
	return err
}

// Applied implements [persistence.IdempotencyStore].
func (s *Store) Applied(ctx context.Context, markers ...persistence.Marker) ([]bool, error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	applied := make([]bool, len(markers))
	for i, m := range markers {
		_, applied[i] = s.markers.Get(persistence.Detach(ctx), m.Key())
	}
	return applied, nil
}
