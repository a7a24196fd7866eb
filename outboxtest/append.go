package outboxtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/persistence"
)

var appendRules = []rule{
	{"Append and Publish outside a transaction fail closed", func(s *suite) {
		require.ErrorIs(s, s.Outbox.Append(s.ctx, record("a")), persistence.ErrNoTransaction)
		require.ErrorIs(s, events.NewPublisher(s.Outbox).Publish(s.ctx, events.Event{Type: "t", AggregateType: "a", AggregateID: "1"}), persistence.ErrNoTransaction)
		s.wantIDs()
	}},
	{"a context whose transaction has ended counts as none", func(s *suite) {
		var committed, rolledBack, savepoint context.Context
		require.NoError(s, s.Transactor.Atomically(s.ctx, func(ctx context.Context) error {
			committed = ctx
			require.NoError(s, s.Transactor.Atomically(ctx, func(ctx context.Context) error {
				savepoint = ctx
				return nil
			}))
			require.ErrorIs(s, s.Outbox.Append(savepoint, record("a")), persistence.ErrNoTransaction)
			return nil
		}))
		require.ErrorIs(s, s.Transactor.Atomically(s.ctx, func(ctx context.Context) error {
			rolledBack = ctx
			return errRollback
		}), errRollback)
		for _, ctx := range []context.Context{committed, rolledBack, savepoint} {
			require.ErrorIs(s, s.Outbox.Append(ctx, record("a")), persistence.ErrNoTransaction)
		}
		s.wantIDs()
	}},
	{"a transaction of another database counts as none", func(s *suite) {
		other := s.open(s)
		require.NoError(s, other.Transactor.Atomically(s.ctx, func(ctx context.Context) error {
			require.ErrorIs(s, s.Outbox.Append(ctx, record("a")), persistence.ErrNoTransaction)
			_, err := s.Idempotency.Record(ctx, persistence.Marker{Event: persistence.Cursor{CreatedTime: stamp(0), ID: "a"}, Handler: "h"})
			require.ErrorIs(s, err, persistence.ErrNoTransaction)
			return nil
		}))
		// Both in one context: each store finds its own.
		require.NoError(s, s.Transactor.Atomically(s.ctx, func(ctx context.Context) error {
			return other.Transactor.Atomically(ctx, func(ctx context.Context) error {
				return errors.Join(s.Outbox.Append(ctx, record("mine")), other.Outbox.Append(ctx, record("theirs")))
			})
		}))
		s.wantIDs("mine")
		(&suite{T: s.T, Backend: other, ctx: s.ctx}).wantIDs("theirs")
	}},
	{"payloads of one batch are kept apart, whatever their bytes", func(s *suite) {
		want := numbered("batch", 4)
		want[0].Payload = []byte("mehr als ein Byte: ÄÖÜ 🏦")
		want[1].Payload = []byte{0xff, 0xfe, 0x00, 0x80}
		want[2].Payload = nil
		want[3].Payload = []byte("\\'\"\x00end")
		s.commit(want...)
		for i, got := range s.read(beginning) {
			require.True(s, bytes.Equal(want[i].Payload, got.Payload), "payload %d: %q", i, got.Payload)
		}
	}},
	{"every column makes the round trip", func(s *suite) {
		want := persistence.Record{
			ID: "!id~", AccountID: "Kontö 🏦", AggregateType: "tÿpe", AggregateID: `"quoted' \ {1,2}`,
			EventType: "<event> & more", Payload: []byte("💾\x00\xff"),
		}
		s.commit(want)
		got := s.read(beginning)
		require.Len(s, got, 1)
		require.False(s, got[0].CreatedTime.IsZero())
		want.CreatedTime = got[0].CreatedTime
		require.Equal(s, want, got[0])
	}},
	{"an empty account is valid", func(s *suite) {
		r := record("a")
		r.AccountID = ""
		s.commit(r)
		require.Empty(s, s.read(beginning)[0].AccountID)
	}},
	{"payloads of 0 bytes, 10 MB and arbitrary bytes are kept", func(s *suite) {
		arbitrary := make([]byte, 256)
		for i := range arbitrary {
			arbitrary[i] = byte(i)
		}
		payloads := [][]byte{nil, {}, arbitrary, bytes.Repeat([]byte("0123456789"), 1<<20), {0}}
		records := numbered("p", len(payloads))
		for i := range records {
			records[i].Payload = payloads[i]
		}
		s.commit(records...)
		got := s.read(beginning)
		require.Len(s, got, len(payloads))
		for i := range payloads {
			require.True(s, bytes.Equal(payloads[i], got[i].Payload), "payload %d", i)
		}
	}},
	{"an event without a payload is an event", func(s *suite) {
		r := record("a")
		r.Payload = nil
		s.commit(r)
		require.Empty(s, s.read(beginning)[0].Payload)
	}},
	{"the store keeps no reference to a payload", func(s *suite) {
		r := record("a")
		r.Payload = []byte("before")
		require.NoError(s, s.Transactor.Atomically(s.ctx, func(ctx context.Context) error {
			err := s.Outbox.Append(ctx, r)
			copy(r.Payload, "after!")
			return err
		}))
		first := s.read(beginning)
		require.Equal(s, "before", string(first[0].Payload))
		copy(first[0].Payload, "reader")
		require.Equal(s, "before", string(s.read(beginning)[0].Payload))
	}},
	{"many events of one transaction keep their order, whatever their ids", func(s *suite) {
		var want []string
		require.NoError(s, s.Transactor.Atomically(s.ctx, func(ctx context.Context) error {
			for batch := range 3 {
				records := numbered("", 400)
				for i := range records { // descending, within the batch and from batch to batch
					records[i].ID = fmt.Sprintf("%c-%04d", 'c'-batch, len(records)-i)
				}
				want = append(want, ids(records)...)
				if err := s.Outbox.Append(ctx, records...); err != nil {
					return err
				}
			}
			return nil
		}))
		s.wantIDs(want...)
	}},
	{"transactions one after the other keep their order, whatever their ids", func(s *suite) {
		var want []string
		for _, r := range numbered("t", 50) {
			r.ID = strings.Repeat("z", 60-len(want)) + r.ID[len(r.ID)-2:] // descending
			want = append(want, r.ID)
			s.commit(r)
		}
		s.wantIDs(want...)
	}},
	{"an empty Append writes nothing and needs a transaction", func(s *suite) {
		require.ErrorIs(s, s.Outbox.Append(s.ctx), persistence.ErrNoTransaction)
		require.NoError(s, s.Transactor.Atomically(s.ctx, func(ctx context.Context) error { return s.Outbox.Append(ctx) }))
		s.wantIDs()
	}},
	{"bad records are refused together, each field named, and nothing is written", func(s *suite) {
		long := func(n int) string { return strings.Repeat("x", n) }
		bad := map[string]func(*persistence.Record){
			"id":             func(r *persistence.Record) { r.ID = long(65) },
			"event_type":     func(r *persistence.Record) { r.EventType = "" },
			"aggregate_type": func(r *persistence.Record) { r.AggregateType = long(256) },
			"aggregate_id":   func(r *persistence.Record) { r.AggregateID = "\xff" },
			"account_id":     func(r *persistence.Record) { r.AccountID = "a\x00b" },
			"payload":        func(r *persistence.Record) { r.Payload = make([]byte, persistence.DefaultMaxPayload+1) },
		}
		records := []persistence.Record{record("good")}
		for field, spoil := range bad {
			r := record("bad-" + field)
			spoil(&r)
			records = append(records, r)
		}
		require.NoError(s, s.Transactor.Atomically(s.ctx, func(ctx context.Context) error {
			err := s.Outbox.Append(ctx, records...)
			require.ErrorIs(s, err, persistence.ErrInvalid)
			for field := range bad {
				require.ErrorContains(s, err, field)
			}
			for _, id := range []string{"", "with space", "tab\t", "é", "nul\x00"} {
				r := record("x")
				r.ID = id
				require.ErrorIs(s, s.Outbox.Append(ctx, r), persistence.ErrInvalid, "id %q", id)
			}
			require.ErrorIs(s, s.Outbox.Append(ctx, record("twice"), record("twice")), persistence.ErrInvalid)
			// The refusals leave the transaction usable.
			return s.Outbox.Append(ctx, record("after"))
		}))
		s.wantIDs("after")
	}},
	{"a row that somebody else inserts without a stamp is stamped and read, or refused", func(s *suite) {
		if s.Insert == nil {
			s.Skip("the backend has no Insert")
		}
		s.commit(record("a"))
		err := s.Insert(s.ctx, record("by-hand"))
		s.commit(record("b"))
		if err != nil {
			s.wantIDs("a", "b")
			return
		}
		s.wantIDs("a", "by-hand", "b")
	}},
}
