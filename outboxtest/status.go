package outboxtest

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/persistence"
)

func (s *suite) needsStatus() {
	s.Helper()
	if s.Status == nil {
		s.Skip("the backend has no Status")
	}
}

// status returns what the store tells of the outbox and the dispatcher d.
func (s *suite) status() (persistence.OutboxStatus, persistence.DispatcherStatus) {
	s.Helper()
	status, err := s.Status.ReadStatus(s.ctx, "d")
	require.NoError(s, err)
	require.Len(s, status.Dispatchers, 1)
	return status.OutboxStatus, status.Dispatchers[0]
}

var statusRules = []rule{
	{"a status tells of all dispatchers, or of those that are named", func(s *suite) {
		s.needsStatus()
		status, err := s.Status.ReadStatus(s.ctx)
		require.NoError(s, err)
		require.Empty(s, status.Dispatchers)
		mark, err := s.Outbox.SafeMark(s.ctx)
		require.NoError(s, err)
		require.WithinDuration(s, mark.Now, status.Now, time.Minute)
		s.load("b")
		s.load("a")
		status, err = s.Status.ReadStatus(s.ctx)
		require.NoError(s, err)
		require.Len(s, status.Dispatchers, 2)
		require.Equal(s, "a", status.Dispatchers[0].Dispatcher)
		require.Equal(s, "b", status.Dispatchers[1].Dispatcher)
		status, err = s.Status.ReadStatus(s.ctx, "b")
		require.NoError(s, err)
		require.Len(s, status.Dispatchers, 1)
		require.Equal(s, "b", status.Dispatchers[0].Dispatcher)
		require.Empty(s, status.Unread)
	}},
	{"a status of a dispatcher that does not exist says so, beside all that there is", func(s *suite) {
		s.needsStatus()
		for existing := range 2 {
			status, err := s.Status.ReadStatus(s.ctx, "nobody", "a", "no other")
			require.ErrorIs(s, err, persistence.ErrNotFound)
			require.ErrorContains(s, err, "nobody")
			require.ErrorContains(s, err, "no other")
			require.False(s, status.Now.IsZero())
			require.NotNil(s, status.Producers)
			if s.Partition != nil {
				require.Len(s, status.Partitions, 2)
			}
			require.NotNil(s, status.Dispatchers)
			require.Len(s, status.Dispatchers, existing)
			if existing == 0 {
				s.load("a")
			} else {
				require.Equal(s, "a", status.Dispatchers[0].Dispatcher)
			}
		}
	}},
	{"a status tells what lies after the cursor", func(s *suite) {
		s.needsStatus()
		lease := s.load("d").Lease
		_, d := s.status()
		require.Equal(s, persistence.Count{}, d.After)
		require.Nil(s, d.Oldest)
		s.commit(numbered("e", 5)...)
		all := s.read(beginning)
		s.save(lease, all[1].Cursor())
		outbox, d := s.status()
		require.Equal(s, all[1].Cursor(), d.Cursor)
		require.Equal(s, persistence.Count{N: 3}, d.After)
		require.Equal(s, all[2].Cursor(), *d.Oldest)
		require.Equal(s, persistence.Seconds(max(0, outbox.Now.Sub(all[2].CreatedTime))), d.OldestAge)
		s.save(lease, all[4].Cursor())
		_, d = s.status()
		require.Equal(s, persistence.Count{}, d.After)
		require.Nil(s, d.Oldest)
		require.Zero(s, d.OldestAge)
	}},
	{"a status counts no further than its bound", func(s *suite) {
		s.needsStatus()
		s.load("d")
		s.commit(numbered("e", persistence.MaxStatusCount)...)
		_, d := s.status()
		require.Equal(s, persistence.Count{N: persistence.MaxStatusCount}, d.After)
		s.commit(record("one-more"))
		_, d = s.status()
		require.Equal(s, persistence.Count{N: persistence.MaxStatusCount, More: true}, d.After)
	}},
	{"a status tells who holds the lease", func(s *suite) {
		s.needsStatus()
		s.load("d")
		_, d := s.status()
		require.Equal(s, persistence.LeaseStatus{}, d.Lease)
		lease, err := s.Cursors.Acquire(s.ctx, "d", "owner", time.Hour)
		require.NoError(s, err)
		_, d = s.status()
		require.Equal(s, persistence.LeaseStatus{Owner: "owner", Token: lease.Token, Expires: lease.ExpiresTime, Held: true}, d.Lease)
		_, err = s.Cursors.Acquire(s.ctx, "d", "owner", 0)
		require.NoError(s, err)
		_, d = s.status()
		require.Equal(s, "owner", d.Lease.Owner)
		require.False(s, d.Lease.Held, "it has expired")
		lease, err = s.Cursors.Acquire(s.ctx, "d", "heir", time.Hour)
		require.NoError(s, err)
		_, d = s.status()
		require.True(s, d.Lease.Held && d.Lease.Unclean)
		require.NoError(s, s.Cursors.Release(s.ctx, lease))
		_, d = s.status()
		require.Equal(s, persistence.LeaseStatus{Token: lease.Token}, d.Lease)
	}},
	{"a status tells what fails, what is dead and who is behind", func(s *suite) {
		s.needsStatus()
		lease := s.load("d").Lease
		other := s.load("other").Lease
		first, err := s.Cursors.RecordFailure(s.ctx, lease, persistence.Failure{Event: at(1, "x"), Handler: "h", Error: "broken", RetryAfter: time.Hour})
		require.NoError(s, err)
		second, err := s.Cursors.RecordFailure(s.ctx, lease, persistence.Failure{Event: at(2, "x"), Handler: "h", Error: "broken", RetryAfter: time.Hour})
		require.NoError(s, err)
		_, err = s.Cursors.RecordFailure(s.ctx, other, persistence.Failure{Event: at(1, "x"), Handler: "o", Error: "another's"})
		require.NoError(s, err)
		s.bury(lease, letter("a", "h"), letter("b", "h"), letter("c", "h"))
		s.bury(other, letter("a", "o"))
		require.NoError(s, s.setState(letter("c", "h").Marker(), persistence.DeadLetterDead, persistence.DeadLetterDiscarded))
		s.register("d", subscription("left"))
		s.register("other", subscription("others"))
		_, d := s.status()
		require.Equal(s, []persistence.Attempt{first, second}, d.Failing)
		require.Equal(s, persistence.Count{N: 2}, d.FailingCount)
		require.Equal(s, map[persistence.DeadLetterState]persistence.Count{
			persistence.DeadLetterDead: {N: 2}, persistence.DeadLetterDiscarded: {N: 1},
		}, d.DeadLetters)
		require.Len(s, d.Behind, 1)
		require.Equal(s, "left", d.Behind[0].Handler)
	}},
	{"a status tells of a producer that holds the mark, as long as it is open", func(s *suite) {
		s.needsStatus()
		s.needsConcurrency()
		s.load("d")
		s.commit(record("before"))
		s.settled()
		open := s.begin(func(ctx context.Context) error { return s.Outbox.Append(ctx, record("open")) })
		s.commit(record("after"))
		outbox, _ := s.status()
		for len(outbox.Producers) == 0 { // who has just begun may show a moment later
			require.NoError(s, s.ctx.Err())
			if slices.Contains(ids(s.readNow(beginning)), "after") {
				open.finish(nil)
				return // nobody holds the mark of a store that stamps at commit
			}
			outbox, _ = s.status()
		}
		p := outbox.Producers[0]
		require.False(s, p.Began.After(outbox.Now))
		require.Equal(s, persistence.Seconds(outbox.Now.Sub(p.Began)), p.Age)
		require.Equal(s, persistence.Seconds(outbox.Now.Sub(outbox.Mark)), outbox.MarkAge)
		require.Positive(s, outbox.MarkAge)
		open.finish(nil)
		outbox, _ = s.status()
		require.Empty(s, outbox.Producers)
		require.Zero(s, outbox.MarkAge)
	}},
	{"a status tells how long partitions last", func(s *suite) {
		s.needsStatus()
		if s.Retention == nil || s.Partition == nil {
			s.Skip("the backend has no partitions")
		}
		s.load("d")
		report, err := s.Retention.EnsurePartitions(s.ctx, 5, persistence.RetentionOptions{})
		require.NoError(s, err)
		outbox, _ := s.status()
		require.Len(s, outbox.Partitions, 2)
		for _, p := range outbox.Partitions {
			now := report.Now.UTC()
			require.Equal(s, time.Date(now.Year(), now.Month()+6, 1, 0, 0, 0, 0, time.UTC), p.Through)
			require.Equal(s, persistence.Seconds(p.Through.Sub(outbox.Now)), p.Ahead)
			require.Empty(s, p.Detaching)
		}
	}},
	{"a status tells where the oldest partition begins, if the store keeps that", func(s *suite) {
		s.needsStatus()
		s.history()
		if s.Partition == nil {
			s.Skip("the backend has no partitions")
		}
		s.reader("d", 10)
		outbox, _ := s.status()
		require.Zero(s, outbox.Partitions[0].From, "nothing has been dropped")
		_, err := s.drop(monthsAgo(22), persistence.RetentionOptions{})
		require.NoError(s, err)
		outbox, _ = s.status()
		if from := outbox.Partitions[0].From; !from.IsZero() {
			require.Equal(s, monthsAgo(22), from)
		}
	}},
	{"a status takes no part in a transaction, and is JSON without payloads", func(s *suite) {
		s.needsStatus()
		lease := s.load("d").Lease
		s.commit(record("e"))
		s.bury(lease, letter("dead", "h"))
		require.NoError(s, s.Transactor.Atomically(s.ctx, func(ctx context.Context) error {
			if s.OneConnection {
				return nil
			}
			_, err := s.Status.ReadStatus(ctx)
			return err
		}))
		status, err := s.Status.ReadStatus(s.ctx)
		require.NoError(s, err)
		text, err := json.Marshal(status)
		require.NoError(s, err)
		require.NotContains(s, string(text), "payload")
		require.Contains(s, string(text), `"cursor":{"created_time":`)
		var again persistence.Status
		require.NoError(s, json.Unmarshal(text, &again))
		require.Equal(s, status, again)
	}},
}
