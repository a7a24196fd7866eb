package outboxtest

import (
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/persistence"
)

var forgetRules = []rule{
	{"no token is given twice, also when a dispatcher is forgotten", func(s *suite) {
		given := map[int64]string{}
		var zombie persistence.Lease
		for i := range 3 {
			require.Zero(s, s.load("d").Lease.Token, "nobody has worked for it")
			for _, owner := range []string{"one", "two"} {
				lease, err := s.Cursors.Acquire(s.ctx, "d", owner, time.Hour)
				require.NoError(s, err)
				require.Empty(s, given[lease.Token], "token %d", lease.Token)
				given[lease.Token] = owner
				if i == 0 && owner == "one" {
					zombie = lease
				} else {
					require.ErrorIs(s, s.Cursors.Save(s.ctx, zombie, persistence.Progress{Cursor: at(9, "z")}), persistence.ErrLeaseLost)
				}
				require.NoError(s, s.Cursors.Release(s.ctx, lease))
			}
			require.NoError(s, s.Admin.Rewind(s.ctx, "d", at(i, "x")))
			require.NoError(s, s.Admin.Forget(s.ctx, "d"))
		}
		require.Empty(s, s.counts("d"))
	}},
	{"a dispatcher that is forgotten leaves nothing behind", func(s *suite) {
		for _, d := range []string{"d", "other"} {
			lease := s.load(d).Lease
			s.register(d, subscription(d))
			require.NoError(s, s.Cursors.Save(s.ctx, lease, persistence.Progress{Cursor: at(5, "x"), Counts: buckets(1)}))
			_, err := s.Cursors.RecordFailure(s.ctx, lease, persistence.Failure{Event: at(6, "x"), Handler: d})
			require.NoError(s, err)
		}
		require.NoError(s, s.Admin.Forget(s.ctx, "d"))
		s.wantBehind(map[string]persistence.Cursor{"other": beginning})
		require.Empty(s, s.load("d").Attempts)
		require.Empty(s, s.counts("d"))
		require.Len(s, s.load("other").Attempts, 1)
		require.Equal(s, buckets(1), s.counts("other"))
	}},
	{"a subscription that nobody registers or serves is forgotten", func(s *suite) {
		lease := s.load("d").Lease
		served, registered, old := subscription("served"), subscription("registered"), subscription("old")
		s.load("other")
		s.register("other", subscription("other"))
		for wait := 50 * time.Millisecond; ; wait *= 2 {
			s.register("d", served, registered, old)
			for begin := s.now(); s.now().Before(begin.Add(wait)); {
				require.NoError(s, s.ctx.Err())
			}
			before := s.now()
			s.serve(lease, served)
			s.register("d", registered)
			pruned, err := s.Cursors.Prune(s.ctx, lease, wait)
			require.NoError(s, err)
			if s.now().Sub(before) < wait { // it may have taken too long to tell
				require.Equal(s, []persistence.Subscription{old}, pruned)
				break
			}
		}
		s.register("d", subscription("a"))
		pruned, err := s.Cursors.Prune(s.ctx, lease, time.Hour)
		require.NoError(s, err)
		require.Empty(s, pruned)
		pruned, err = s.Cursors.Prune(s.ctx, lease, 0)
		require.NoError(s, err)
		require.Equal(s, []persistence.Subscription{subscription("a"), registered, served}, pruned)
		s.wantBehind(map[string]persistence.Cursor{"other": beginning})
	}},
	{"counts and failures far behind the cursor are forgotten", func(s *suite) {
		end := persistence.BucketStart(stamp(0)).Add(2 * persistence.AuditWindow)
		for _, d := range []string{"d", "other"} {
			lease := s.load(d).Lease
			require.NoError(s, s.Cursors.Save(s.ctx, lease, persistence.Progress{Counts: buckets(1, 2, 3)}))
			for micros := range 3 {
				_, err := s.Cursors.RecordFailure(s.ctx, lease, persistence.Failure{Event: at(micros, "x"), Handler: "h"})
				require.NoError(s, err)
			}
			_, err := s.Cursors.Prune(s.ctx, lease, time.Hour) // at the beginning
			require.NoError(s, err)
			s.save(lease, persistence.Cursor{CreatedTime: end.Add(persistence.BucketWidth), ID: "x"})
		}
		lease := s.load("d").Lease
		prune := func(leftCounts, leftFailures int) {
			s.Helper()
			_, err := s.Cursors.Prune(s.ctx, lease, time.Hour)
			require.NoError(s, err)
			require.Len(s, s.counts("d"), leftCounts)
			require.Len(s, s.load("d").Attempts, leftFailures)
		}
		prune(2, 0)
		require.Len(s, s.counts("other"), 3)
		require.Len(s, s.load("other").Attempts, 3)
		for micros := range 3 {
			_, err := s.Cursors.RecordFailure(s.ctx, lease, persistence.Failure{Event: persistence.Cursor{
				CreatedTime: end.Add(time.Duration(micros) * time.Microsecond), ID: "x",
			}, Handler: "h"})
			require.NoError(s, err)
		}
		s.save(lease, persistence.Cursor{CreatedTime: end.Add(2*persistence.AuditWindow + time.Microsecond), ID: "x"})
		prune(0, 2)
	}},
}
