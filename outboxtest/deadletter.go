package outboxtest

import (
	"context"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/persistence"
)

func letter(id, handler string) persistence.DeadLetter {
	r := record(id)
	r.CreatedTime = stamp(0)
	return persistence.DeadLetter{
		Record: r, Dispatcher: "d", Handler: handler, Attempts: 5, LastError: "ünlucky", State: persistence.DeadLetterDead,
	}
}

func (s *suite) bury(lease persistence.Lease, letters ...persistence.DeadLetter) {
	s.Helper()
	require.NoError(s, s.Transactor.Atomically(s.ctx, func(ctx context.Context) error {
		for _, l := range letters {
			if err := s.Cursors.AddDeadLetter(ctx, lease, l); err != nil {
				return err
			}
		}
		return nil
	}))
}

func (s *suite) letters(query persistence.DeadLetterQuery) []persistence.DeadLetter {
	s.Helper()
	if query.Limit == 0 {
		query.Limit = 100
	}
	found, err := s.DeadLetters.ListDeadLetters(s.ctx, query)
	require.NoError(s, err)
	return found
}

func (s *suite) setState(m persistence.Marker, from, to persistence.DeadLetterState) error {
	return s.Transactor.Atomically(s.ctx, func(ctx context.Context) error {
		return s.DeadLetters.SetDeadLetterState(ctx, m, from, to)
	})
}

var deadLetterRules = []rule{
	{"a dead letter is a full copy, written with its transaction", func(s *suite) {
		lease := s.load("d").Lease
		want := letter("a", "h")
		require.ErrorIs(s, s.Cursors.AddDeadLetter(s.ctx, lease, want), persistence.ErrNoTransaction)
		require.ErrorIs(s, s.Transactor.Atomically(s.ctx, func(ctx context.Context) error {
			require.NoError(s, s.Cursors.AddDeadLetter(ctx, lease, want))
			return errRollback
		}), errRollback)
		require.Empty(s, s.letters(persistence.DeadLetterQuery{}))
		s.bury(lease, want)
		got := s.letters(persistence.DeadLetterQuery{})
		require.Len(s, got, 1)
		mark, err := s.Outbox.SafeMark(s.ctx)
		require.NoError(s, err)
		require.WithinDuration(s, mark.Now, got[0].DeadTime, time.Minute)
		want.DeadTime = got[0].DeadTime
		require.Equal(s, want, got[0])
	}},
	{"a dead letter that exists stays as it is", func(s *suite) {
		lease := s.load("d").Lease
		s.bury(lease, letter("a", "h"))
		again := letter("a", "h")
		again.Attempts = 99
		s.bury(lease, again)
		got := s.letters(persistence.DeadLetterQuery{})
		require.Len(s, got, 1)
		require.Equal(s, 5, got[0].Attempts)
	}},
	{"dead letters are listed by page and filter", func(s *suite) {
		lease := s.load("d").Lease
		s.bury(lease, letter("c", "h"), letter("a", "h2"), letter("b", "h"), letter("a", "h"))
		var order []string
		query := persistence.DeadLetterQuery{Limit: 3}
		for page := s.letters(query); len(page) > 0; page = s.letters(query) {
			for _, l := range page {
				order = append(order, l.Record.ID+"/"+l.Handler)
				query.After = l.Marker()
			}
		}
		require.Equal(s, []string{"a/h", "a/h2", "b/h", "c/h"}, order)
		require.Len(s, s.letters(persistence.DeadLetterQuery{Handler: "h2"}), 1)
		require.Len(s, s.letters(persistence.DeadLetterQuery{Dispatcher: "d"}), 4)
		require.Empty(s, s.letters(persistence.DeadLetterQuery{Dispatcher: "other"}))
		require.NoError(s, s.setState(letter("b", "h").Marker(), persistence.DeadLetterDead, persistence.DeadLetterRequeued))
		require.Len(s, s.letters(persistence.DeadLetterQuery{State: persistence.DeadLetterDead}), 3)
		require.Len(s, s.letters(persistence.DeadLetterQuery{State: persistence.DeadLetterRequeued}), 1)
	}},
	{"a dead letter changes its state once, in its transaction", func(s *suite) {
		s.bury(s.load("d").Lease, letter("a", "h"))
		m := letter("a", "h").Marker()
		require.ErrorIs(s, s.DeadLetters.SetDeadLetterState(s.ctx, m, persistence.DeadLetterDead, persistence.DeadLetterReplayed), persistence.ErrNoTransaction)
		require.ErrorIs(s, s.Transactor.Atomically(s.ctx, func(ctx context.Context) error {
			require.NoError(s, s.DeadLetters.SetDeadLetterState(ctx, m, persistence.DeadLetterDead, persistence.DeadLetterReplayed))
			return errRollback
		}), errRollback)
		require.NoError(s, s.setState(m, persistence.DeadLetterDead, persistence.DeadLetterReplayed))
		require.ErrorIs(s, s.setState(m, persistence.DeadLetterDead, persistence.DeadLetterReplayed), persistence.ErrNotFound)
		require.ErrorIs(s, s.setState(letter("nobody", "h").Marker(), persistence.DeadLetterDead, persistence.DeadLetterReplayed), persistence.ErrNotFound)
	}},
	{"only settled dead letters are purged, the given number, by age", func(s *suite) {
		s.bury(s.load("d").Lease, letter("a", "h"), letter("b", "h"), letter("c", "h"), letter("e", "h"))
		for _, id := range []string{"b", "c"} {
			require.NoError(s, s.setState(letter(id, "h").Marker(), persistence.DeadLetterDead, persistence.DeadLetterDiscarded))
		}
		require.NoError(s, s.setState(letter("e", "h").Marker(), persistence.DeadLetterDead, persistence.DeadLetterRequeued))
		mark, err := s.Outbox.SafeMark(s.ctx)
		require.NoError(s, err)
		purge := func(before time.Time, limit int) int {
			n, err := s.DeadLetters.PurgeDeadLetters(s.ctx, before, limit)
			require.NoError(s, err)
			return n
		}
		require.Zero(s, purge(mark.Now.Add(-time.Hour), 10))
		require.Equal(s, 1, purge(mark.Now.Add(time.Hour), 1))
		require.Equal(s, 1, purge(mark.Now.Add(time.Hour), 10))
		require.Len(s, s.letters(persistence.DeadLetterQuery{}), 2)
	}},
}
