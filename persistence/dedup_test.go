package persistence_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/persistence"
)

func reservation(account, id, key string) persistence.Reservation {
	return persistence.Reservation{
		Record: persistence.Record{ID: id, AccountID: account, AggregateType: "User", AggregateID: "1", EventType: "t"},
		Key:    key,
	}
}

func TestCheckReservationsReturnsTheKeysInOneOrder(t *testing.T) {
	a, b, c, none := reservation("1", "a", "é"), reservation("1", "b", "z"), reservation("2", "c", "A"), reservation("1", "d", "")
	for _, args := range [][]persistence.Reservation{{a, b, c, none}, {none, c, b, a}, {b, none, a, c}} {
		keyed, err := persistence.CheckReservations("outbox", 10, args...)
		require.NoError(t, err)
		require.Equal(t, []persistence.Reservation{b, a, c}, keyed)
	}
	keyed, err := persistence.CheckReservations("outbox", 10)
	require.NoError(t, err)
	require.Empty(t, keyed)
}

func TestCheckReservationsNamesWhatIsWrong(t *testing.T) {
	bad := reservation("1", "bad", "\xff")
	bad.Record.EventType = ""
	_, err := persistence.CheckReservations("outbox", 10, reservation("1", "a", "k"), bad)
	require.ErrorIs(t, err, persistence.ErrInvalid)
	for _, named := range []string{"event_type is empty", "dedup_key is not valid UTF-8", `"bad"`, "table outbox"} {
		require.ErrorContains(t, err, named)
	}
	_, err = persistence.CheckReservations("outbox", 10, reservation("1", "a", "k"), reservation("2", "b", "k"), reservation("1", "c", "k"))
	require.ErrorIs(t, err, persistence.ErrDuplicate)
	for _, named := range []string{"event c", "event a", `"k"`, `account "1"`} {
		require.ErrorContains(t, err, named)
	}
}

// purger is a retention that finds n keys to purge, and fails at the end.
type purger struct {
	persistence.DedupStore
	n      int
	limits []int
	before time.Time
	err    error
}

func (p *purger) EnsurePartitions(context.Context, int, persistence.RetentionOptions) (persistence.RetentionReport, error) {
	return persistence.RetentionReport{Now: time.Unix(1e9, 0)}, nil
}

func (p *purger) DropPartitionsBefore(context.Context, time.Time, persistence.RetentionOptions) (persistence.RetentionReport, error) {
	return persistence.RetentionReport{}, persistence.ErrOwed
}

func (p *purger) PurgeKeys(_ context.Context, before time.Time, limit int) (int, error) {
	p.before, p.limits = before, append(p.limits, limit)
	n := min(p.n, limit)
	p.n -= n
	if p.n == 0 {
		return n, p.err
	}
	return n, nil
}

func TestRetainPurgesKeysInBatchesWhateverIsOwed(t *testing.T) {
	broken := errors.New("broken")
	for _, n := range []int{0, 999, 1000, 2500} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			p := &purger{n: n, err: broken}
			report, err := persistence.Retain(t.Context(), p, 0, persistence.RetentionOptions{KeepKeys: time.Hour})
			require.ErrorIs(t, err, persistence.ErrOwed)
			require.ErrorIs(t, err, broken)
			require.Equal(t, n, report.PurgedKeys)
			require.Len(t, p.limits, max(1, (n+999)/1000))
			require.Equal(t, time.Unix(1e9, 0).Add(-time.Hour), p.before)
		})
	}
}
