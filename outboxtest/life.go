package outboxtest

import (
	"context"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/persistence"
)

var lifeRules = []rule{
	{"a lease is good for one life of the server", func(s *suite) {
		loaded := s.load("d").Lease
		if loaded.Incarnation == "" {
			s.Skip("cannot occur: the store has a single life")
		}
		lease, err := s.Cursors.Acquire(s.ctx, "d", "owner", time.Hour)
		require.NoError(s, err)
		renewed, err := s.Cursors.Acquire(s.ctx, "d", "owner", time.Hour)
		require.NoError(s, err)
		require.Equal(s, loaded.Incarnation, lease.Incarnation)
		require.Equal(s, lease.Incarnation, renewed.Incarnation)
		states, err := s.Admin.ListCursors(s.ctx)
		require.NoError(s, err)
		require.Equal(s, lease.Incarnation, states[0].Lease.Incarnation)

		sub := persistence.Subscription{EventType: "t", Handler: "h"}
		require.NoError(s, s.Cursors.Register(s.ctx, "d", sub))
		markers := []persistence.Marker{{Event: at(3, "a"), Handler: "h"}, {Event: at(3, "b"), Handler: "h"}}
		progress := persistence.Progress{
			Cursor: at(5, "x"), Count: 3, Counts: buckets(7), CaughtUp: []persistence.Subscription{sub},
			Settled: []persistence.Marker{{Event: at(2, "a"), Handler: "h"}},
		}
		_, err = s.Cursors.RecordFailure(s.ctx, lease, persistence.Failure{Event: at(2, "a"), Handler: "h"})
		require.NoError(s, err)
		within := func(lease persistence.Lease, limit time.Duration, fn func(context.Context) error) error {
			ctx := persistence.WithLease(s.ctx, lease)
			if limit > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, limit)
				defer cancel()
			}
			return s.Transactor.Atomically(ctx, fn)
		}
		recorded := func(ctx context.Context, markers ...persistence.Marker) error {
			_, err := s.Idempotency.Record(ctx, markers...)
			return err
		}
		writes := []struct {
			what string
			do   func(persistence.Lease) error
		}{
			{"a failure", func(lease persistence.Lease) error {
				_, err := s.Cursors.RecordFailure(s.ctx, lease, persistence.Failure{Event: at(9, "a"), Handler: "h"})
				return err
			}},
			{"progress", func(lease persistence.Lease) error { return s.Cursors.Save(s.ctx, lease, progress) }},
			{"progress of the cursor alone", func(lease persistence.Lease) error {
				return s.Cursors.Save(s.ctx, lease, persistence.Progress{Cursor: at(6, "x")})
			}},
			{"a dead letter", func(lease persistence.Lease) error {
				return within(lease, 0, func(ctx context.Context) error { return s.Cursors.AddDeadLetter(ctx, lease, letter("z", "h")) })
			}},
			{"subscriptions", func(lease persistence.Lease) error {
				_, err := s.Cursors.Serve(s.ctx, lease, sub)
				return err
			}},
			{"pruning", func(lease persistence.Lease) error {
				_, err := s.Cursors.Prune(s.ctx, lease, time.Hour)
				return err
			}},
			{"a new marker", func(lease persistence.Lease) error {
				return within(lease, time.Minute, func(ctx context.Context) error {
					return s.Idempotency.RecordNew(ctx, persistence.Marker{Event: at(1, "a"), Handler: "h"})
				})
			}},
			{"a new marker without a deadline", func(lease persistence.Lease) error {
				return within(lease, 0, func(ctx context.Context) error {
					return s.Idempotency.RecordNew(ctx, persistence.Marker{Event: at(1, "b"), Handler: "h"})
				})
			}},
			{"a marker", func(lease persistence.Lease) error {
				return within(lease, time.Minute, func(ctx context.Context) error {
					return recorded(ctx, persistence.Marker{Event: at(1, "c"), Handler: "h"})
				})
			}},
			{"several markers", func(lease persistence.Lease) error {
				return within(lease, time.Minute, func(ctx context.Context) error { return recorded(ctx, markers...) })
			}},
			{"markers that exist", func(lease persistence.Lease) error {
				return within(lease, 0, func(ctx context.Context) error { return recorded(ctx, markers...) })
			}},
			{"the release", func(lease persistence.Lease) error { return s.Cursors.Release(s.ctx, lease) }},
		}
		former := lease
		former.Incarnation = "former " + lease.Incarnation
		before := s.load("d")
		for _, write := range writes {
			require.ErrorIs(s, write.do(former), persistence.ErrLeaseLost, write.what)
		}
		require.Equal(s, before, s.load("d"))
		require.Empty(s, s.counts("d"))
		applied, err := s.Idempotency.Applied(s.ctx, markers...)
		require.NoError(s, err)
		require.Equal(s, []bool{false, false}, applied)
		for _, write := range writes {
			require.NoError(s, write.do(lease), write.what)
		}
		require.Equal(s, at(6, "x"), s.load("d").Cursor)
	}},
}
