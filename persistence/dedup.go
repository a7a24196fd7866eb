package persistence

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// DefaultKeepKeys is how long [Retain] keeps dedup keys, unless its options say
// something else.
const DefaultKeepKeys = 30 * 24 * time.Hour

// DedupStore keeps the dedup keys of events, so that a command which is tried
// again emits at most one event. Implementations are safe for concurrent use.
type DedupStore interface {
	// ReserveKeys takes the keys of records in the transaction that ctx
	// carries, before they are appended in it. A record without a key takes
	// none.
	//
	//   - Without a live transaction of this store's database it returns
	//     [ErrNoTransaction].
	//   - All records and keys are validated first ([CheckReservations]): those
	//     that Append would refuse reserve nothing.
	//   - A key is unique per account, compared byte by byte. If any is taken,
	//     by a transaction that has committed or by this one, the error is
	//     [ErrDuplicate]. Then none is reserved by this call, and the
	//     transaction stays usable.
	//   - When an open transaction has reserved one of the keys, ReserveKeys
	//     waits for it to end: [ErrDuplicate] if it commits, success if it rolls
	//     back. Keys are taken in one order, whatever that of the arguments, so
	//     that two calls do not wait for each other.
	//   - On a rollback the keys are free.
	//   - Where a transaction keeps to a snapshot that is older than a key's
	//     commit, the database may fail it instead, as a serialization failure;
	//     tried again it is [ErrDuplicate].
	//   - It is one statement and one round trip, whatever the number of keys,
	//     and none without keys. A refusal may take another one.
	ReserveKeys(ctx context.Context, reservations ...Reservation) error

	// PurgeKeys frees up to limit keys that were reserved before the time, by
	// the database's clock, and returns how many. It works outside of any
	// transaction that ctx carries, and passes by keys that somebody has locked.
	PurgeKeys(ctx context.Context, before time.Time, limit int) (int, error)
}

// Reservation is a record that is about to be appended, and its dedup key.
type Reservation struct {
	Record Record
	// Key is 1 to [MaxReferenceBytes] of valid UTF-8 without NUL, or "" for a
	// record without one. It belongs to the record's account.
	Key string
}

func (r Reservation) compare(other Reservation) int {
	return cmp.Or(strings.Compare(r.Record.AccountID, other.Record.AccountID), strings.Compare(r.Key, other.Key))
}

func (r Reservation) String() string {
	return fmt.Sprintf("event %s: dedup key %q of account %q", r.Record.ID, r.Key, r.Record.AccountID)
}

// CheckReservations validates records, as [Validate] does, and their keys. It
// returns those that have a key, in the order in which every store takes them.
// The error is [ErrInvalid], or [ErrDuplicate] if two of them have the same key.
func CheckReservations(table string, maxPayload int, reservations ...Reservation) ([]Reservation, error) {
	records := make([]Record, len(reservations))
	var keyed []Reservation
	var violations []error
	for i, r := range reservations {
		records[i] = r.Record
		if r.Key == "" {
			continue
		}
		keyed = append(keyed, r)
		problem := CheckText(r.Key, MaxReferenceBytes)
		if problem != "" && len(violations) < maxReportedViolations {
			violations = append(violations, fmt.Errorf("event %d (id %.80q): dedup_key %s", i, r.Record.ID, problem))
		}
	}
	err := Validate(table, maxPayload, records...)
	if len(violations) > 0 {
		err = errors.Join(err, fmt.Errorf("outbox table %s: nothing is written: %w: %w", table, ErrInvalid, errors.Join(violations...)))
	}
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(keyed, Reservation.compare)
	for i := 1; i < len(keyed); i++ {
		if keyed[i-1].compare(keyed[i]) == 0 {
			return nil, fmt.Errorf("outbox table %s: nothing is written: %w: %s is that of event %s, too, which is published with it",
				table, ErrDuplicate, keyed[i], keyed[i-1].Record.ID)
		}
	}
	return keyed, nil
}

// Taken returns the [ErrDuplicate] error that names the reservations whose keys
// are taken, for the authors of stores.
func Taken(table string, taken ...Reservation) error {
	var named []error
	for _, r := range taken[:min(len(taken), maxReportedViolations)] {
		named = append(named, errors.New(r.String()))
	}
	return fmt.Errorf("outbox table %s: nothing is written: %w, an event with it has been published before: %w", table, ErrDuplicate, errors.Join(named...))
}
