package memstore

import (
	"context"
	"errors"
	"time"

	"github.com/onward-go/outbox/persistence"
)

type dedupKey struct{ account, key string }

// ReserveKeys implements [persistence.DedupStore].
func (s *Store) ReserveKeys(ctx context.Context, reservations ...persistence.Reservation) error {
	t, err := s.current(ctx)
	if err != nil {
		return err
	}
	if s.invalid != nil {
		return s.invalid
	}
	keyed, err := persistence.CheckReservations(tableName, s.maxPayload, reservations...)
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	// A refusal takes back what was reserved before it, locks and all.
	const savepoint = "keys"
	if err := t.Savepoint(ctx, savepoint); err != nil {
		return err
	}
	if err := s.reserve(ctx, keyed); err != nil {
		if t.Err() != nil {
			return err // everything went with the transaction
		}
		return errors.Join(err, t.RollbackTo(ctx, savepoint))
	}
	return t.Release(ctx, savepoint)
}

func (s *Store) reserve(ctx context.Context, keyed []persistence.Reservation) error {
	var taken []persistence.Reservation
	for _, r := range keyed {
		// The row's lock is what a racing twin waits for.
		err := s.keys.Update(ctx, dedupKey{r.Record.AccountID, r.Key}, func(reserved time.Time, exists bool) (time.Time, error) {
			if exists {
				taken = append(taken, r)
				return reserved, nil
			}
			return now(), nil
		})
		if err != nil {
			return err
		}
	}
	if len(taken) > 0 {
		return persistence.Taken(tableName, taken...)
	}
	return nil
}

// PurgeKeys implements [persistence.DedupStore].
func (s *Store) PurgeKeys(ctx context.Context, before time.Time, limit int) (int, error) {
	if err := persistence.CheckLimit(limit); err != nil {
		return 0, err
	}
	if err := s.lock(ctx); err != nil {
		return 0, err
	}
	defer s.mu.Unlock()
	return s.keys.purge(limit, func(reserved time.Time) bool { return reserved.Before(before) }), nil
}
