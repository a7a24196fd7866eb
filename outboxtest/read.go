package outboxtest

import (
	"context"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/persistence"
)

var readRules = []rule{
	{"ReadAfter returns up to limit records after the cursor", func(s *suite) {
		s.commit(numbered("r", 5)...)
		all := s.read(beginning)
		for after := range all {
			for limit := 1; limit <= 6; limit++ {
				got, err := s.Outbox.ReadAfter(s.ctx, all[after].Cursor(), limit)
				require.NoError(s, err)
				want := all[after+1 : min(after+1+limit, len(all))]
				require.Equal(s, ids(want), ids(got))
			}
		}
	}},
	{"a limit below 1 is refused", func(s *suite) {
		for _, read := range []persistence.WindowRead{{Limit: -1}, {LateLimit: -1}, {MaxBytes: -1}} {
			_, err := s.Outbox.ReadWindow(s.ctx, read)
			require.ErrorIs(s, err, persistence.ErrInvalid)
		}
		for _, limit := range []int{0, -1} {
			_, err := s.Outbox.ReadAfter(s.ctx, beginning, limit)
			require.ErrorIs(s, err, persistence.ErrInvalid)
			_, err = s.DeadLetters.ListDeadLetters(s.ctx, persistence.DeadLetterQuery{Limit: limit})
			require.ErrorIs(s, err, persistence.ErrInvalid)
			_, err = s.DeadLetters.PurgeDeadLetters(s.ctx, stamp(0), limit)
			require.ErrorIs(s, err, persistence.ErrInvalid)
		}
	}},
	{"stamps are UTC, in whole microseconds, near the database's clock", func(s *suite) {
		before, err := s.Outbox.SafeMark(s.ctx)
		require.NoError(s, err)
		s.commit(record("a"))
		got := s.read(beginning)[0].CreatedTime
		require.Equal(s, time.UTC, got.Location())
		require.Equal(s, got.Truncate(time.Microsecond), got)
		require.WithinRange(s, got, before.Now.Add(-time.Second), before.Now.Add(time.Minute))
	}},
	{"ties are ordered by id, byte by byte, and cut anywhere", func(s *suite) {
		if s.Insert == nil {
			s.Skip("the backend has no Insert: its stamps never tie")
		}
		want := []string{"!", "10", "2", "A", "B", "_", "a", "aa", "b", "~"}
		for i := range want {
			r := record(want[(i*7+3)%len(want)])
			r.CreatedTime = stamp(0)
			require.NoError(s, s.Insert(s.ctx, r))
		}
		s.wantIDs(want...)
		for i, id := range want {
			got, err := s.Outbox.ReadAfter(s.ctx, persistence.Cursor{CreatedTime: stamp(0), ID: id}, 1)
			require.NoError(s, err)
			if i+1 < len(want) {
				require.Equal(s, want[i+1:i+2], ids(got))
			} else {
				require.Empty(s, got)
			}
		}
	}},
	{"microseconds are told apart", func(s *suite) {
		if s.Insert == nil {
			s.Skip("the backend has no Insert")
		}
		for i, id := range []string{"c", "b", "a"} {
			r := record(id)
			r.CreatedTime = stamp(time.Duration(i) * time.Microsecond)
			require.NoError(s, s.Insert(s.ctx, r))
		}
		s.wantIDs("c", "b", "a")
		require.Equal(s, stamp(time.Microsecond), s.read(beginning)[1].CreatedTime)
	}},
	{"an older row that commits after a newer one was read is still delivered", func(s *suite) { s.lateCommit(1) }},
	{"older rows that were appended together are still delivered, too", func(s *suite) { s.lateCommit(3) }},
	{"a savepoint that is rolled back does not uncover an older open row", func(s *suite) {
		s.needsConcurrency()
		if s.SavepointsBlock {
			s.Skip("cannot occur: the other producer waits")
		}
		late := s.begin(func(ctx context.Context) error {
			if err := s.Outbox.Append(ctx, record("late")); err != nil {
				return err
			}
			err := s.Transactor.Atomically(ctx, func(ctx context.Context) error {
				if err := s.Outbox.Append(ctx, record("inner")); err != nil {
					return err
				}
				return errRollback
			})
			require.ErrorIs(s, err, errRollback)
			return nil
		})
		s.commit(record("early"))
		first := s.readNow(beginning)
		cursor := beginning
		if len(first) > 0 {
			cursor = first[len(first)-1].Cursor()
		}
		late.finish(nil)
		require.ElementsMatch(s, []string{"late", "early"}, append(ids(first), ids(s.read(cursor))...))
	}},
	{"a producer that rolls back stops holding the mark", func(s *suite) {
		s.needsConcurrency()
		open := s.begin(func(ctx context.Context) error { return s.Outbox.Append(ctx, record("never")) })
		s.commit(record("a"))
		open.finish(errRollback)
		s.wantIDs("a")
	}},
	{"the safe mark is above what can be read, and never above what is open", func(s *suite) {
		s.commit(record("a"))
		require.NotEmpty(s, s.read(beginning))
		mark, err := s.Outbox.SafeMark(s.ctx)
		require.NoError(s, err)
		require.True(s, mark.Time.After(s.read(beginning)[0].CreatedTime))
		require.WithinDuration(s, time.Now(), mark.Now, time.Hour)
		s.commit(record("b"))
		require.False(s, s.read(beginning)[1].CreatedTime.Before(mark.Time))
	}},
	{"rows are counted by bucket", func(s *suite) {
		s.commit(numbered("n", 7)...)
		all := s.read(beginning)
		last := all[len(all)-1].CreatedTime
		buckets, err := s.Outbox.CountRows(s.ctx, all[0].CreatedTime, last)
		require.NoError(s, err)
		var rows int64
		for _, b := range buckets {
			require.Zero(s, b.Start.UnixMicro()%persistence.BucketWidth.Microseconds())
			require.Equal(s, time.UTC, b.Start.Location())
			rows += b.Rows
			require.Equal(s, offsetsOf(b.Start, all[:6]), b.Offsets)
		}
		require.Equal(s, int64(6), rows, "the end is exclusive")
		buckets, err = s.Outbox.CountRows(s.ctx, last.Add(time.Hour), last.Add(2*time.Hour))
		require.NoError(s, err)
		require.Empty(s, buckets)
	}},
	{"reads take no part in the context's transaction", func(s *suite) {
		s.commit(record("a"))
		s.wantIDs("a")
		require.NoError(s, s.Transactor.Atomically(s.ctx, func(ctx context.Context) error {
			require.NoError(s, s.Outbox.Append(ctx, record("b")))
			got, err := s.Outbox.ReadAfter(ctx, beginning, 10)
			if s.OneConnection && err != nil {
				require.ErrorIs(s, err, persistence.ErrInTransaction)
				return nil
			}
			require.NoError(s, err)
			require.NotContains(s, ids(got), "b")
			return nil
		}))
	}},
	{"a cancelled context reads and writes nothing", func(s *suite) {
		s.commit(record("a"))
		cancelled, cancel := context.WithCancel(s.ctx)
		cancel()
		lease := s.load("d").Lease
		m := persistence.Marker{Event: persistence.Cursor{CreatedTime: stamp(0), ID: "a"}, Handler: "h"}
		for name, call := range map[string]func() error{
			"ReadAfter":  func() error { _, err := s.Outbox.ReadAfter(cancelled, beginning, 1); return err },
			"ReadWindow": func() error { _, err := s.Outbox.ReadWindow(cancelled, persistence.WindowRead{Limit: 1}); return err },
			"SafeMark":   func() error { _, err := s.Outbox.SafeMark(cancelled); return err },
			"CountRows":  func() error { _, err := s.Outbox.CountRows(cancelled, stamp(0), stamp(time.Hour)); return err },
			"Create":     func() error { return s.Cursors.Create(cancelled, "other", beginning) },
			"Load":       func() error { _, err := s.Cursors.Load(cancelled, "d"); return err },
			"Acquire":    func() error { _, err := s.Cursors.Acquire(cancelled, "d", "o", time.Minute); return err },
			"Release":    func() error { return s.Cursors.Release(cancelled, lease) },
			"Save":       func() error { return s.Cursors.Save(cancelled, lease, persistence.Progress{Cursor: m.Event}) },
			"RecordFailure": func() error {
				_, err := s.Cursors.RecordFailure(cancelled, lease, persistence.Failure{Event: m.Event, Handler: "h"})
				return err
			},
			"Save counts": func() error {
				return s.Cursors.Save(cancelled, lease, persistence.Progress{Cursor: m.Event, Counts: buckets(1)})
			},
			"Counts":            func() error { _, err := s.Cursors.Counts(cancelled, "d", stamp(0), stamp(time.Hour)); return err },
			"Register":          func() error { return s.Cursors.Register(cancelled, "d", subscription("h")) },
			"Serve":             func() error { _, err := s.Cursors.Serve(cancelled, lease); return err },
			"Prune":             func() error { _, err := s.Cursors.Prune(cancelled, lease, time.Hour); return err },
			"ListSubscriptions": func() error { _, err := s.Cursors.ListSubscriptions(cancelled); return err },
			"Rewind":            func() error { return s.Admin.Rewind(cancelled, "d", m.Event) },
			"Forget":            func() error { return s.Admin.Forget(cancelled, "d") },
			"Applied":           func() error { _, err := s.Idempotency.Applied(cancelled, m); return err },
		} {
			require.Error(s, call(), name)
		}
		states, err := s.Admin.ListCursors(s.ctx)
		require.NoError(s, err)
		require.Len(s, states, 1)
		require.True(s, s.load("d").Cursor.IsZero())
		require.Empty(s, s.subscriptions())
	}},
}

// lateCommit keeps n rows open while a newer one commits and is read.
func (s *suite) lateCommit(n int) {
	s.needsConcurrency()
	late := s.begin(func(ctx context.Context) error { return s.Outbox.Append(ctx, numbered("late", n)...) })
	s.commit(record("early"))
	// Whatever the reader is given now, its cursor must not pass the rows that
	// are still open.
	cursor := beginning
	seen := []string{}
	for _, r := range s.readNow(cursor) {
		cursor = r.Cursor()
		seen = append(seen, r.ID)
	}
	late.finish(nil)
	seen = append(seen, ids(s.read(cursor))...)
	require.ElementsMatch(s, append(ids(numbered("late", n)), "early"), seen)
}

// offsetsOf adds up the records that are stamped in a bucket.
func offsetsOf(bucket time.Time, records []persistence.Record) (sum persistence.Offsets) {
	for _, r := range records {
		if offset := r.CreatedTime.Sub(bucket); offset >= 0 && offset < persistence.BucketWidth {
			sum.Rows++
			sum.Micros += offset.Microseconds()
		}
	}
	return sum
}
