package outboxtest

import (
	"context"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/persistence"
)

func at(micros int, id string) persistence.Cursor {
	return persistence.Cursor{CreatedTime: stamp(time.Duration(micros) * time.Microsecond), ID: id}
}

func (s *suite) save(lease persistence.Lease, to persistence.Cursor) {
	s.Helper()
	require.NoError(s, s.Cursors.Save(s.ctx, lease, persistence.Progress{Cursor: to}))
}

var cursorRules = []rule{
	{"a new dispatcher begins at its start, an old one where it was", func(s *suite) {
		_, err := s.Cursors.Load(s.ctx, "d")
		require.ErrorIs(s, err, persistence.ErrNotFound)
		require.NoError(s, s.Cursors.Create(s.ctx, "d", at(5, "x")))
		state, err := s.Cursors.Load(s.ctx, "d")
		require.NoError(s, err)
		require.Equal(s, persistence.State{
			Lease: persistence.Lease{Dispatcher: "d", Incarnation: state.Lease.Incarnation}, Cursor: at(5, "x"), CountedFrom: persistence.BucketAfter(at(5, "x")),
		}, state)
		require.NoError(s, s.Cursors.Create(s.ctx, "d", at(9, "y")))
		require.Equal(s, at(5, "x"), s.load("d").Cursor)
		require.True(s, s.load("other").Cursor.IsZero())
	}},
	{"the cursor is kept to the microsecond and the byte", func(s *suite) {
		lease := s.load("d").Lease
		for _, c := range []persistence.Cursor{at(0, "a"), at(0, "b"), at(1, "A"), at(1, "a"), at(2, "~")} {
			s.save(lease, c)
			require.Equal(s, c, s.load("d").Cursor)
		}
	}},
	{"a stale writer never moves the cursor backwards", func(s *suite) {
		lease := s.load("d").Lease
		s.save(lease, at(5, "m"))
		for _, stale := range []persistence.Cursor{at(5, "m"), at(5, "a"), at(5, "M"), at(4, "z"), beginning} {
			s.save(lease, stale)
			require.Equal(s, at(5, "m"), s.load("d").Cursor)
		}
	}},
	{"cursors of two dispatchers are apart", func(s *suite) {
		s.save(s.load("a").Lease, at(1, "x"))
		s.save(s.load("A").Lease, at(2, "x"))
		require.Equal(s, at(1, "x"), s.load("a").Cursor)
		states, err := s.Admin.ListCursors(s.ctx)
		require.NoError(s, err)
		require.Len(s, states, 2)
		require.Equal(s, []string{"A", "a"}, []string{states[0].Lease.Dispatcher, states[1].Lease.Dispatcher})
		require.Equal(s, at(2, "x"), states[0].Cursor)
	}},
	{"failures are counted, and forgotten when their deliveries are settled", func(s *suite) {
		lease := s.load("d").Lease
		fail := func(event persistence.Cursor, handler string) persistence.Attempt {
			attempt, err := s.Cursors.RecordFailure(s.ctx, lease, persistence.Failure{
				Event: event, Handler: handler, Error: "ünlucky", RetryAfter: time.Hour,
			})
			require.NoError(s, err)
			return attempt
		}
		first := fail(at(2, "a"), "h")
		require.Equal(s, 1, first.Attempts)
		require.Equal(s, "ünlucky", first.LastError)
		require.Equal(s, at(2, "a"), first.Event)
		mark, err := s.Outbox.SafeMark(s.ctx)
		require.NoError(s, err)
		require.WithinDuration(s, mark.Now.Add(time.Hour), first.NextTime, time.Minute)
		require.Equal(s, 2, fail(at(2, "a"), "h").Attempts)
		require.Equal(s, 1, fail(at(2, "a"), "H").Attempts)
		require.Equal(s, 1, fail(at(3, "a"), "h").Attempts)
		require.Len(s, s.load("d").Attempts, 3)
		_, err = s.Cursors.RecordFailure(s.ctx, s.load("other").Lease, persistence.Failure{Event: at(2, "a"), Handler: "h"})
		require.NoError(s, err)
		s.save(lease, at(2, "a"))
		require.Len(s, s.load("d").Attempts, 3, "a cursor that passes does not say that all is settled")
		settled := []persistence.Marker{{Event: at(2, "a"), Handler: "h"}, {Event: at(3, "a"), Handler: "h"}, {Event: at(4, "a"), Handler: "h"}}
		for range 2 { // to save the same twice is to save it once
			require.NoError(s, s.Cursors.Save(s.ctx, lease, persistence.Progress{Cursor: at(2, "a"), Settled: settled}))
			left := s.load("d").Attempts
			require.Len(s, left, 1)
			require.Equal(s, "H", left[0].Handler)
			require.Len(s, s.load("other").Attempts, 1)
		}
	}},
	{"a failure that is counted already gets another error and time, and no number", func(s *suite) {
		lease := s.load("d").Lease
		fail := func(failure persistence.Failure, want int) {
			s.Helper()
			failure.Event, failure.Handler = at(2, "a"), "h"
			attempt, err := s.Cursors.RecordFailure(s.ctx, lease, failure)
			require.NoError(s, err)
			require.Equal(s, want, attempt.Attempts)
			require.Equal(s, failure.Error, attempt.LastError)
			require.WithinDuration(s, s.now().Add(failure.RetryAfter), attempt.NextTime, time.Minute)
			require.Equal(s, []persistence.Attempt{attempt}, s.load("d").Attempts)
		}
		fail(persistence.Failure{Error: "first", Counted: true}, 0)
		fail(persistence.Failure{Error: "second", RetryAfter: time.Hour}, 1)
		fail(persistence.Failure{Error: "third", RetryAfter: 2 * time.Hour, Counted: true}, 1)
		fail(persistence.Failure{Error: "fourth"}, 2)
		fail(persistence.Failure{Error: "fifth", TakeBack: true}, 1)
	}},
	{"a long error is kept whole", func(s *suite) {
		text := strings.Repeat("é", persistence.MaxErrorBytes/2)
		attempt, err := s.Cursors.RecordFailure(s.ctx, s.load("d").Lease, persistence.Failure{Event: at(1, "a"), Handler: "h", Error: text})
		require.NoError(s, err)
		require.Equal(s, text, attempt.LastError)
	}},
	{"sidecar writes take no part in the context's transaction", func(s *suite) {
		lease := s.load("d").Lease
		refused := false
		require.ErrorIs(s, s.Transactor.Atomically(s.ctx, func(ctx context.Context) error {
			err := s.Cursors.Save(ctx, lease, persistence.Progress{Cursor: at(5, "x")})
			if err != nil && (s.OneWriter || s.OneConnection) {
				require.ErrorIs(s, err, persistence.ErrInTransaction, "it must refuse, not wait")
				refused = true
				return errRollback
			}
			require.NoError(s, err)
			_, err = s.Cursors.RecordFailure(ctx, lease, persistence.Failure{Event: at(6, "x"), Handler: "h"})
			require.NoError(s, err)
			return errRollback
		}), errRollback)
		if refused {
			require.True(s, s.load("d").Cursor.IsZero())
			return
		}
		require.Equal(s, at(5, "x"), s.load("d").Cursor)
		require.Len(s, s.load("d").Attempts, 1)
	}},
	{"an operator can rewind a cursor and forget a dispatcher", func(s *suite) {
		lease := s.load("d").Lease
		s.save(lease, at(5, "x"))
		_, err := s.Cursors.RecordFailure(s.ctx, lease, persistence.Failure{Event: at(6, "x"), Handler: "h"})
		require.NoError(s, err)
		require.NoError(s, s.Admin.Rewind(s.ctx, "d", at(1, "y")))
		require.Equal(s, at(1, "y"), s.load("d").Cursor)
		require.ErrorIs(s, s.Cursors.Save(s.ctx, lease, persistence.Progress{Cursor: at(7, "x")}), persistence.ErrLeaseLost,
			"whoever was at work must not undo the rewind")
		require.NoError(s, s.Admin.Forget(s.ctx, "d"))
		require.True(s, s.load("d").Cursor.IsZero())
		require.Empty(s, s.load("d").Attempts)
		require.ErrorIs(s, s.Admin.Rewind(s.ctx, "nobody", beginning), persistence.ErrNotFound)
		require.ErrorIs(s, s.Admin.Forget(s.ctx, "nobody"), persistence.ErrNotFound)
	}},
}

// buckets returns consecutive buckets with these numbers.
func buckets(events ...int64) []persistence.Bucket {
	all := make([]persistence.Bucket, len(events))
	for i, n := range events {
		all[i] = persistence.Bucket{Start: persistence.BucketStart(stamp(0)).Add(time.Duration(i) * persistence.BucketWidth), Rows: n,
			Offsets: persistence.Offsets{Micros: 7 * n, Rows: n - 1}}
	}
	return all
}

// counts returns all counts of a dispatcher.
func (s *suite) counts(dispatcher string) []persistence.Bucket {
	s.Helper()
	all, err := s.Cursors.Counts(s.ctx, dispatcher, time.Time{}, stamp(365*24*time.Hour))
	require.NoError(s, err)
	return all
}

var countRules = []rule{
	{"settled events are counted from the first whole bucket on", func(s *suite) {
		start := persistence.BucketStart(stamp(0))
		require.NoError(s, s.Cursors.Create(s.ctx, "d", persistence.Cursor{CreatedTime: start}))
		require.Equal(s, start, s.load("d").CountedFrom)
		s.save(s.load("d").Lease, at(0, "x"))
		require.Equal(s, start, s.load("d").CountedFrom, "the cursor moves on")
		require.NoError(s, s.Admin.Rewind(s.ctx, "d", at(1, "x")))
		require.Equal(s, start.Add(persistence.BucketWidth), s.load("d").CountedFrom)
		states, err := s.Admin.ListCursors(s.ctx)
		require.NoError(s, err)
		require.Equal(s, start.Add(persistence.BucketWidth), states[0].CountedFrom)
		require.NoError(s, s.Admin.Rewind(s.ctx, "d", beginning))
		require.True(s, s.load("d").CountedFrom.IsZero())
	}},
	{"the count of the cursor's bucket goes with the cursor", func(s *suite) {
		lease := s.load("d").Lease
		for _, c := range []struct {
			to          persistence.Cursor
			count, want int64
			why         string
		}{
			{at(5, "x"), 1 << 40, 1 << 40, "it moves"},
			{at(5, "w"), 7, 1 << 40, "it stays, since it was further"},
			{at(4, "y"), 7, 1 << 40, "it stays, since it was later"},
			{at(5, "x"), 3, 3, "it stays, and knows better"},
			{at(5, "y"), 4, 4, "it moves within a moment"},
			{at(6, "a"), 5, 5, "it moves to an id that is less"},
		} {
			require.NoError(s, s.Cursors.Save(s.ctx, lease, persistence.Progress{Cursor: c.to, Count: c.count, Offsets: persistence.Offsets{Micros: 3 * c.count, Rows: c.count}}))
			state := s.load("d")
			require.Equal(s, c.want, state.Count, c.why)
			require.Equal(s, persistence.Offsets{Micros: 3 * c.want, Rows: c.want}, state.Offsets, c.why)
		}
		states, err := s.Admin.ListCursors(s.ctx)
		require.NoError(s, err)
		require.EqualValues(s, 5, states[0].Count)
		require.Empty(s, s.counts("d"))
		require.NoError(s, s.Admin.Rewind(s.ctx, "d", at(6, "a")))
		require.Zero(s, s.load("d").Count)
		require.Zero(s, s.load("d").Offsets)
	}},
	{"counts replace those saved before, and others stay", func(s *suite) {
		lease := s.load("d").Lease
		all := buckets(3, 0, 1<<40, 5)
		save := func(counts ...persistence.Bucket) {
			s.Helper()
			for range 2 { // to save the same twice is to save it once
				require.NoError(s, s.Cursors.Save(s.ctx, lease, persistence.Progress{Cursor: at(5, "x"), Counts: counts}))
			}
		}
		save(all[2], all[0], all[1])
		require.Equal(s, all[:3], s.counts("d"))
		require.Equal(s, at(5, "x"), s.load("d").Cursor)
		more := buckets(2, 7, 1, 5) // a number may be corrected downwards, too
		save(all[3], more[0])
		save(persistence.Bucket{Start: more[0].Start, Rows: 9}, more[0])
		require.Equal(s, []persistence.Bucket{more[0], all[1], all[2], all[3]}, s.counts("d"))

		got, err := s.Cursors.Counts(s.ctx, "d", all[1].Start, all[3].Start)
		require.NoError(s, err)
		require.Equal(s, all[1:3], got, "the end is exclusive")
		got, err = s.Cursors.Counts(s.ctx, "d", all[0].Start.Add(time.Microsecond), all[1].Start.Add(time.Microsecond))
		require.NoError(s, err)
		require.Equal(s, all[1:2], got)
		s.load("D")
		require.Empty(s, s.counts("D"))
		require.Empty(s, s.counts("nobody"))
	}},
}

var leaseRules = []rule{
	{"bad names, positions, leases and markers are refused", func(s *suite) {
		far := persistence.Cursor{CreatedTime: time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC)}
		s.load("d")
		for what, call := range map[string]func() error{
			"no name":         func() error { return s.Cursors.Create(s.ctx, "", beginning) },
			"NUL in a name":   func() error { return s.Cursors.Create(s.ctx, "a\x00b", beginning) },
			"a long name":     func() error { return s.Cursors.Create(s.ctx, strings.Repeat("x", 129), beginning) },
			"a far start":     func() error { return s.Cursors.Create(s.ctx, "far", far) },
			"a far rewind":    func() error { return s.Admin.Rewind(s.ctx, "d", far) },
			"no owner":        func() error { _, err := s.Cursors.Acquire(s.ctx, "d", "", time.Minute); return err },
			"a negative time": func() error { _, err := s.Cursors.Acquire(s.ctx, "d", "o", -time.Minute); return err },
			"an empty marker": func() error {
				return s.Transactor.Atomically(s.ctx, func(ctx context.Context) error {
					_, err := s.Idempotency.Record(ctx, persistence.Marker{})
					return err
				})
			},
			"no function": func() error { return s.Transactor.Atomically(s.ctx, nil) },
		} {
			require.ErrorIs(s, call(), persistence.ErrInvalid, what)
		}
		states, err := s.Admin.ListCursors(s.ctx)
		require.NoError(s, err)
		require.Len(s, states, 1)
		require.True(s, states[0].Cursor.IsZero())
	}},
	{"a lease is held by one owner until it is released", func(s *suite) {
		_, err := s.Cursors.Acquire(s.ctx, "d", "one", time.Hour)
		require.ErrorIs(s, err, persistence.ErrNotFound)
		s.load("d")
		first, err := s.Cursors.Acquire(s.ctx, "d", "one", time.Hour)
		require.NoError(s, err)
		require.Equal(s, "one", first.Owner)
		require.False(s, first.Unclean)
		mark, err := s.Outbox.SafeMark(s.ctx)
		require.NoError(s, err)
		require.WithinDuration(s, mark.Now.Add(time.Hour), first.ExpiresTime, time.Minute)
		_, err = s.Cursors.Acquire(s.ctx, "d", "two", time.Hour)
		require.ErrorIs(s, err, persistence.ErrLeaseHeld)
		require.ErrorContains(s, err, `"one"`)
		renewed, err := s.Cursors.Acquire(s.ctx, "d", "one", 2*time.Hour)
		require.NoError(s, err)
		require.Equal(s, first.Token, renewed.Token)
		require.True(s, renewed.ExpiresTime.After(first.ExpiresTime))
		require.NoError(s, s.Cursors.Release(s.ctx, first))
		second, err := s.Cursors.Acquire(s.ctx, "d", "two", time.Hour)
		require.NoError(s, err)
		require.Greater(s, second.Token, first.Token)
		require.False(s, second.Unclean)
	}},
	{"an expired lease is taken over, and its former owner can write nothing", func(s *suite) {
		s.load("d")
		zombie, err := s.Cursors.Acquire(s.ctx, "d", "zombie", 0)
		require.NoError(s, err)
		heir, err := s.Cursors.Acquire(s.ctx, "d", "heir", time.Hour)
		require.NoError(s, err)
		require.True(s, heir.Unclean)
		require.ErrorIs(s, s.Cursors.Save(s.ctx, zombie, persistence.Progress{Cursor: at(9, "z")}), persistence.ErrLeaseLost)
		_, err = s.Cursors.RecordFailure(s.ctx, zombie, persistence.Failure{Event: at(9, "z"), Handler: "h"})
		require.ErrorIs(s, err, persistence.ErrLeaseLost)
		require.ErrorIs(s, s.Cursors.Release(s.ctx, zombie), persistence.ErrLeaseLost)
		require.ErrorIs(s, s.Transactor.Atomically(s.ctx, func(ctx context.Context) error {
			return s.Cursors.AddDeadLetter(ctx, zombie, letter("z", "h"))
		}), persistence.ErrLeaseLost)
		s.save(heir, at(1, "a"))
		state := s.load("d")
		require.Equal(s, at(1, "a"), state.Cursor)
		require.Empty(s, state.Attempts)
		require.Equal(s, "heir", state.Lease.Owner)
		require.Empty(s, s.letters(persistence.DeadLetterQuery{}))
	}},
}
