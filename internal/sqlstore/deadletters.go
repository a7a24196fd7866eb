package sqlstore

import (
	"context"
	"time"

	"github.com/onward-go/outbox/persistence"
)

// AddDeadLetter implements persistence.OutboxCursorStore.
func (s *Store) AddDeadLetter(ctx context.Context, lease persistence.Lease, letter persistence.DeadLetter) error {
	conn, err := s.tx(ctx)
	if err != nil {
		return err
	}
	r := letter.Record
	n, err := conn.Exec(ctx, s.sql.AddDeadLetter, lease.Dispatcher, lease.Token,
		s.at(r.CreatedTime), r.ID, letter.Handler, r.AccountID, r.AggregateType, r.AggregateID, r.EventType, notNull(r.Payload),
		letter.Attempts, letter.LastError, string(letter.State))
	if err == nil && n == 0 {
		// The letter exists already, or the token is stale.
		var holds bool
		if holds, err = exists(ctx, conn, s.sql.HoldsToken, lease.Dispatcher, lease.Token); holds {
			n = 1
		}
	}
	return s.fenced(lease, n, err, "write a dead letter of event "+r.ID)
}

// ListDeadLetters implements persistence.DeadLetterStore.
func (s *Store) ListDeadLetters(ctx context.Context, query persistence.DeadLetterQuery) ([]persistence.DeadLetter, error) {
	if err := persistence.CheckLimit(query.Limit); err != nil {
		return nil, err
	}
	conn, err := s.pool(ctx, reading)
	if err != nil {
		return nil, err
	}
	var letters []persistence.DeadLetter
	args := []any{string(query.State), query.Dispatcher, query.Handler,
		s.at(query.After.Event.CreatedTime), query.After.Event.ID, query.After.Handler, query.Limit}
	err = conn.Query(ctx, s.sql.ListDeadLetters, args, func(scan func(...any) error) error {
		var l persistence.DeadLetter
		r := &l.Record
		var state string
		err := scan(timestamp{&r.CreatedTime}, &r.ID, &l.Handler, &l.Dispatcher, &r.AccountID, &r.AggregateType,
			&r.AggregateID, &r.EventType, &r.Payload, &l.Attempts, &l.LastError, &state, timestamp{&l.DeadTime})
		l.State = persistence.DeadLetterState(state)
		letters = append(letters, l)
		return err
	})
	return letters, s.failed(err, "list dead letters")
}

// SetDeadLetterState implements persistence.DeadLetterStore.
func (s *Store) SetDeadLetterState(ctx context.Context, letter persistence.Marker, from, to persistence.DeadLetterState) error {
	conn, err := s.tx(ctx)
	if err != nil {
		return err
	}
	n, err := conn.Exec(ctx, s.sql.SetDeadLetterState, s.at(letter.Event.CreatedTime), letter.Event.ID, letter.Handler, string(from), string(to))
	return s.found(n, err, "set the %s dead letter of event %s, handler %q, to %s", from, letter.Event, letter.Handler, to)
}

// PurgeDeadLetters implements persistence.DeadLetterStore.
func (s *Store) PurgeDeadLetters(ctx context.Context, before time.Time, limit int) (int, error) {
	if err := persistence.CheckLimit(limit); err != nil {
		return 0, err
	}
	conn, err := s.pool(ctx, writing)
	if err != nil {
		return 0, err
	}
	n, err := conn.Exec(ctx, s.sql.PurgeDeadLetters, s.at(before), limit)
	return int(n), s.failed(err, "purge dead letters")
}
