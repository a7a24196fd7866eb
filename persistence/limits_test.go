package persistence_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/persistence"
)

func valid(id string) persistence.Record {
	return persistence.Record{ID: id, EventType: "t", AggregateType: "a", AggregateID: "1"}
}

func TestValidate(t *testing.T) {
	require.NoError(t, persistence.Validate("outbox", 1))
	require.NoError(t, persistence.Validate("outbox", 3, valid("a"), valid(strings.Repeat("x", 64))))
	for want, spoil := range map[string]func(*persistence.Record){
		`id is empty`:                            func(r *persistence.Record) { r.ID = "" },
		`id is 65 bytes, the limit is 64`:        func(r *persistence.Record) { r.ID = strings.Repeat("x", 65) },
		`id contains a character`:                func(r *persistence.Record) { r.ID = "a b" },
		`event_type is empty`:                    func(r *persistence.Record) { r.EventType = "" },
		`event_type is 256 bytes`:                func(r *persistence.Record) { r.EventType = strings.Repeat("x", 256) },
		`aggregate_type is not valid UTF-8`:      func(r *persistence.Record) { r.AggregateType = "\xff" },
		`aggregate_id contains a NUL character`:  func(r *persistence.Record) { r.AggregateID = "a\x00" },
		`aggregate_id is 256 bytes`:              func(r *persistence.Record) { r.AggregateID = strings.Repeat("é", 128) },
		`account_id is 256 bytes`:                func(r *persistence.Record) { r.AccountID = strings.Repeat("x", 256) },
		`payload is 4 bytes, the limit is 3`:     func(r *persistence.Record) { r.Payload = []byte("1234") },
		`event 1 (id "ok"): id is that of event`: func(r *persistence.Record) { r.ID = "ok" },
	} {
		bad := valid("bad")
		spoil(&bad)
		err := persistence.Validate("app_outbox", 3, valid("ok"), bad)
		require.ErrorIs(t, err, persistence.ErrInvalid, want)
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, "app_outbox")
	}
	many := make([]persistence.Record, 10_000)
	require.Less(t, len(persistence.Validate("outbox", 1, many...).Error()), 10_000, "the message is bounded")
}

func TestCursorOrder(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	inOrder := []persistence.Cursor{
		{}, {CreatedTime: at}, {CreatedTime: at, ID: "B"}, {CreatedTime: at, ID: "a"}, {CreatedTime: at.Add(time.Microsecond), ID: "A"},
	}
	for i, a := range inOrder {
		for j, b := range inOrder {
			require.Equal(t, min(1, max(-1, i-j)), a.Compare(b), "%s, %s", a, b)
		}
	}
	require.True(t, inOrder[0].IsZero())
	require.False(t, inOrder[1].IsZero())
	require.Equal(t, "beginning", inOrder[0].String())
	require.Equal(t, "2026-01-01T00:00:00.000000Z/a", inOrder[3].String())
}
