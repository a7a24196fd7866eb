package sqlstore

import (
	"context"

	"github.com/onward-go/outbox/persistence"
)

// Record implements persistence.IdempotencyStore.
func (s *Store) Record(ctx context.Context, markers ...persistence.Marker) ([]bool, error) {
	conn, err := s.tx(ctx)
	if err != nil {
		return nil, err
	}
	recorded := make([]bool, len(markers))
	for i, m := range markers {
		if err := persistence.CheckMarker(m); err != nil {
			return nil, err
		}
		n, err := conn.Exec(ctx, s.sql.RecordMarker, s.at(m.Event.CreatedTime), m.Event.ID, m.Handler)
		if duplicate := s.cfg.Dialect.isDuplicate; duplicate != nil && duplicate(err) {
			continue
		}
		if err != nil {
			return nil, s.failed(err, "record the marker of event %s, handler %q", m.Event, m.Handler)
		}
		recorded[i] = n == 1
	}
	return recorded, nil
}

// Applied implements persistence.IdempotencyStore.
func (s *Store) Applied(ctx context.Context, markers ...persistence.Marker) ([]bool, error) {
	conn, err := s.pool(ctx, reading)
	if err != nil {
		return nil, err
	}
	applied := make([]bool, len(markers))
	if len(markers) == 0 {
		return applied, nil
	}
	keys, err := encodeMarkers(markers)
	if err != nil {
		return nil, s.failed(err, "read %d markers", len(markers))
	}
	err = conn.Query(ctx, s.sql.AppliedMarkers, []any{keys}, func(scan func(...any) error) error {
		var number int
		if err := scan(&number); err != nil {
			return err
		}
		applied[number-1] = true
		return nil
	})
	return applied, s.failed(err, "read %d markers", len(markers))
}
