package sqlstore

import (
	"context"
	"time"

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
		args := []any{s.at(m.Event.CreatedTime), m.Event.ID, m.Handler}
		if s.cfg.Dialect.limitsIdle {
			args = append(args, idleLimit(ctx).Milliseconds())
		}
		n, err := conn.Exec(ctx, s.sql.RecordMarker, args...)
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

// idleLimit is how long the transaction may stand idle before the server ends
// it, or 0. Whoever is alive has ended it by then: ctx is over.
func idleLimit(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return 0
	}
	const longest = 24 * 24 * time.Hour // milliseconds are 32 bits
	return min(max(time.Until(deadline), 0)+time.Second, longest)
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
