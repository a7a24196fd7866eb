package sqlstore

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/onward-go/outbox/persistence"
)

type jsonDedupKey struct {
	AccountID string `json:"account_id"`
	Key       string `json:"key"`
}

func keyOf(r persistence.Reservation) jsonDedupKey {
	return jsonDedupKey{r.Record.AccountID, r.Key}
}

func encodeDedupKeys(reservations []persistence.Reservation) (string, error) {
	keys := make([]jsonDedupKey, len(reservations))
	for i, r := range reservations {
		keys[i] = keyOf(r)
	}
	text, err := json.Marshal(keys)
	return string(text), err
}

// ReserveKeys implements persistence.DedupStore.
func (s *Store) ReserveKeys(ctx context.Context, reservations ...persistence.Reservation) error {
	conn, err := s.tx(ctx)
	if err != nil {
		return err
	}
	keyed, err := persistence.CheckReservations(s.table, s.cfg.MaxPayload, reservations...)
	if err != nil || len(keyed) == 0 {
		return err
	}
	reserve := s.reserveOrNone
	if s.cfg.Dialect.isDuplicate == nil {
		reserve = s.reserveFree
	}
	taken, err := reserve(ctx, conn, keyed)
	if err != nil {
		return s.failed(err, "reserve %d dedup keys, first of %s", len(keyed), keyed[0])
	}
	if len(taken) > 0 {
		return persistence.Taken(s.table, taken...)
	}
	return nil
}

// reserveFree reserves those keys that are free, and gives them back if there
// are others, which it returns.
func (s *Store) reserveFree(ctx context.Context, conn Conn, keyed []persistence.Reservation) (taken []persistence.Reservation, err error) {
	keys, err := encodeDedupKeys(keyed)
	if err != nil {
		return nil, err
	}
	reserved := map[jsonDedupKey]bool{}
	err = conn.Query(ctx, s.sql.ReserveKeys, []any{keys}, func(scan func(...any) error) error {
		var key jsonDedupKey
		err := scan(&key.AccountID, &key.Key)
		reserved[key] = true
		return err
	})
	if err != nil || len(reserved) == len(keyed) {
		return nil, err
	}
	var own []persistence.Reservation
	for _, r := range keyed {
		if reserved[keyOf(r)] {
			own = append(own, r)
		} else {
			taken = append(taken, r)
		}
	}
	if len(own) == 0 {
		return taken, nil
	}
	if keys, err = encodeDedupKeys(own); err != nil {
		return nil, err
	}
	n, err := conn.Exec(ctx, s.sql.ReleaseKeys, keys)
	if err == nil && n != int64(len(own)) {
		err = fmt.Errorf("the server gave back %d of %d keys: roll the transaction back", n, len(own))
	}
	return taken, err
}

// reserveOrNone reserves all keys, or none on databases where a statement that
// meets a duplicate fails as a whole. It returns those that are taken.
func (s *Store) reserveOrNone(ctx context.Context, conn Conn, keyed []persistence.Reservation) (taken []persistence.Reservation, err error) {
	keys, err := encodeDedupKeys(keyed)
	if err != nil {
		return nil, err
	}
	n, err := conn.Exec(ctx, s.sql.ReserveKeys, keys)
	switch {
	case err == nil && n != int64(len(keyed)):
		return nil, fmt.Errorf("the server wrote %d of %d keys: roll the transaction back", n, len(keyed))
	case err == nil || !s.cfg.Dialect.isDuplicate(err):
		return nil, err
	case len(keyed) == 1:
		return keyed, nil
	}
	// The error does not tell which.
	err = conn.Query(ctx, s.sql.TakenKeys, []any{keys}, func(scan func(...any) error) error {
		var number int
		err := scan(&number)
		if err == nil {
			taken = append(taken, keyed[number-1])
		}
		return err
	})
	if err == nil && len(taken) == 0 {
		taken = keyed // one of them: the transaction's snapshot is older
	}
	return taken, err
}

// PurgeKeys implements persistence.DedupStore.
func (s *Store) PurgeKeys(ctx context.Context, before time.Time, limit int) (int, error) {
	if err := persistence.CheckLimit(limit); err != nil {
		return 0, err
	}
	conn, err := s.pool(ctx, writing)
	if err != nil {
		return 0, err
	}
	n, err := conn.Exec(ctx, s.sql.PurgeKeys, s.at(before), limit)
	return int(n), s.failed(err, "purge dedup keys")
}
