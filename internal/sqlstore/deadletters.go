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
	n, err := conn.Exec(ctx, s.sql.AddDeadLetter, s.fence(lease,
		s.at(r.CreatedTime), r.ID, letter.Handler, r.AccountID, r.AggregateType, r.AggregateID, r.EventType, notNull(r.Payload),
		letter.Attempts, letter.LastError, string(letter.State))...)
	if err == nil && n == 0 {
		// The letter exists already, or the token is stale.
		var holds bool
		if holds, err = exists(ctx, conn, s.sql.HoldsToken, s.fence(lease)...); holds {
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
	// Without a state the index of states would be of no use.
	statement := s.sql.ListDeadLetters
	if query.State != "" {
		statement = s.sql.ListDeadLettersIn
	}
	var letters []persistence.DeadLetter
	args := []any{string(query.State), query.Dispatcher, query.Handler,
		query.EventID, query.EventType, query.AccountID, query.AggregateType, query.AggregateID,
		s.at(query.After.Event.CreatedTime), query.After.Event.ID, query.After.Handler, query.WithoutPayload, query.Limit}
	err = conn.Query(ctx, statement, args, func(scan func(...any) error) error {
		l, err := scanDeadLetter(scan)
		letters = append(letters, l)
		return err
	})
	return letters, s.failed(err, "list dead letters")
}

func scanDeadLetter(scan func(...any) error) (persistence.DeadLetter, error) {
	var l persistence.DeadLetter
	r := &l.Record
	var state string
	err := scan(timestamp{&r.CreatedTime}, &r.ID, &l.Handler, &l.Dispatcher, &r.AccountID, &r.AggregateType,
		&r.AggregateID, &r.EventType, &r.Payload, &l.Attempts, &l.LastError, &state, timestamp{&l.DeadTime})
	l.State = persistence.DeadLetterState(state)
	return l, err
}

// GetDeadLetter implements persistence.DeadLetterStore.
func (s *Store) GetDeadLetter(ctx context.Context, letter persistence.Marker) (persistence.DeadLetter, error) {
	conn, err := s.pool(ctx, reading)
	if err != nil {
		return persistence.DeadLetter{}, err
	}
	l, found, err := s.getDeadLetter(ctx, conn, letter)
	if err == nil && !found {
		err = persistence.ErrNotFound
	}
	return l, s.failed(err, "get the dead letter of event %s, handler %q", letter.Event, letter.Handler)
}

func (s *Store) getDeadLetter(ctx context.Context, conn Conn, letter persistence.Marker) (l persistence.DeadLetter, found bool, err error) {
	args := []any{s.at(letter.Event.CreatedTime), letter.Event.ID, letter.Handler}
	err = conn.Query(ctx, s.sql.GetDeadLetter, args, func(scan func(...any) error) error {
		found = true
		l, err = scanDeadLetter(scan)
		return err
	})
	return l, found, err
}

// MoveDeadLetter implements persistence.DeadLetterStore.
func (s *Store) MoveDeadLetter(ctx context.Context, move persistence.DeadLetterMove) error {
	conn, err := s.tx(ctx)
	if err != nil {
		return err
	}
	args := []any{s.at(move.Letter.Event.CreatedTime), move.Letter.Event.ID, move.Letter.Handler,
		string(move.From), string(move.To), move.Attempts, move.LastError}
	if s.cfg.Dialect.setsTransaction { // it is the first statement of a replay
		args = append(args, s.idleLimit(ctx))
	}
	n, err := conn.Exec(ctx, s.sql.MoveDeadLetter, args...)
	if err == nil && n == 0 && move.From == move.To {
		// MySQL counts no row that stays as it is.
		var l persistence.DeadLetter
		var found bool
		if l, found, err = s.getDeadLetter(ctx, conn, move.Letter); found && l.State == move.From {
			n = 1
		}
	}
	return s.found(n, err, "move the %s dead letter of event %s, handler %q, to %s", move.From, move.Letter.Event, move.Letter.Handler, move.To)
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
