package outboxtest

import (
	"context"
	"strings"
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

func (s *suite) move(move persistence.DeadLetterMove) error {
	return s.Transactor.Atomically(s.ctx, func(ctx context.Context) error {
		return s.DeadLetters.MoveDeadLetter(ctx, move)
	})
}

func (s *suite) setState(m persistence.Marker, from, to persistence.DeadLetterState) error {
	return s.move(persistence.DeadLetterMove{Letter: m, From: from, To: to})
}

func (s *suite) letter(m persistence.Marker) persistence.DeadLetter {
	s.Helper()
	l, err := s.DeadLetters.GetDeadLetter(s.ctx, m)
	require.NoError(s, err)
	return l
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
		require.NoError(s, s.setState(letter("b", "h").Marker(), persistence.DeadLetterDead, persistence.DeadLetterRequeued))
		require.NoError(s, s.setState(letter("c", "h").Marker(), persistence.DeadLetterDead, persistence.DeadLetterRequeued))
		one := s.letters(persistence.DeadLetterQuery{State: persistence.DeadLetterRequeued, Limit: 1})
		require.Equal(s, "b", one[0].Record.ID)
		one = s.letters(persistence.DeadLetterQuery{State: persistence.DeadLetterRequeued, After: one[0].Marker()})
		require.Len(s, one, 1)
		require.Equal(s, "c", one[0].Record.ID)
		require.Empty(s, s.letters(persistence.DeadLetterQuery{State: persistence.DeadLetterRequeued, After: one[0].Marker()}))
		require.Len(s, s.letters(persistence.DeadLetterQuery{State: persistence.DeadLetterDead}), 2)
	}},
	{"dead letters are filtered by each field, byte by byte", func(s *suite) {
		lease := s.load("d").Lease
		other := persistence.DeadLetter{Record: persistence.Record{
			ID: "b", AccountID: "ä ", AggregateType: "Ä ", AggregateID: "user-1 ", EventType: "Test.happened ",
			Payload: []byte("p"), CreatedTime: stamp(0),
		}, Dispatcher: "d", Handler: "h2", State: persistence.DeadLetterDead}
		plain := other
		plain.Record.ID, plain.Handler = "a", "h1"
		plain.Record.AccountID, plain.Record.AggregateType, plain.Record.AggregateID, plain.Record.EventType = "ä", "Ä", "user-1", "Test.happened"
		s.bury(lease, other, plain)
		for _, want := range []persistence.DeadLetter{other, plain} {
			r := want.Record
			for _, q := range []persistence.DeadLetterQuery{
				{Handler: want.Handler}, {EventID: r.ID}, {EventType: r.EventType}, {AccountID: r.AccountID},
				{AggregateType: r.AggregateType}, {AggregateID: r.AggregateID},
				{State: persistence.DeadLetterDead, Dispatcher: "d", Handler: want.Handler, EventID: r.ID, EventType: r.EventType,
					AccountID: r.AccountID, AggregateType: r.AggregateType, AggregateID: r.AggregateID},
			} {
				found := s.letters(q)
				require.Len(s, found, 1, "%+v", q)
				require.Equal(s, r, found[0].Record, "%+v", q)
			}
		}
		require.Len(s, s.letters(persistence.DeadLetterQuery{Dispatcher: "d"}), 2)
		for _, q := range []persistence.DeadLetterQuery{
			{Dispatcher: "other"}, {EventType: "test.happened"}, {AccountID: "a"}, {AggregateType: " "}, {State: "?"},
			{Handler: "h1", EventID: "b"},
		} {
			require.Empty(s, s.letters(q), "%+v", q)
		}
	}},
	{"dead letters are listed without their payloads, if that is asked for", func(s *suite) {
		s.bury(s.load("d").Lease, letter("a", "h"))
		for _, state := range []persistence.DeadLetterState{"", persistence.DeadLetterDead} {
			found := s.letters(persistence.DeadLetterQuery{State: state, WithoutPayload: true})
			require.Len(s, found, 1)
			require.Empty(s, found[0].Record.Payload)
			require.Equal(s, "a", found[0].Record.ID)
		}
	}},
	{"one dead letter is found by its event and handler", func(s *suite) {
		s.bury(s.load("d").Lease, letter("a", "h"), letter("a", "h2"), letter("b", "h"))
		found := s.letter(letter("a", "h2").Marker())
		want := letter("a", "h2")
		want.DeadTime = found.DeadTime
		require.Equal(s, want, found)
		for _, m := range []persistence.Marker{letter("a", "h3").Marker(), letter("c", "h").Marker(), {}} {
			_, err := s.DeadLetters.GetDeadLetter(s.ctx, m)
			require.ErrorIs(s, err, persistence.ErrNotFound)
		}
		// Neither takes part in a transaction.
		if !s.OneConnection {
			require.ErrorIs(s, s.Transactor.Atomically(s.ctx, func(ctx context.Context) error {
				m := letter("a", "h").Marker()
				require.NoError(s, s.DeadLetters.MoveDeadLetter(ctx, persistence.DeadLetterMove{Letter: m, From: persistence.DeadLetterDead, To: persistence.DeadLetterDiscarded}))
				found, err := s.DeadLetters.GetDeadLetter(ctx, m)
				require.NoError(s, err)
				require.Equal(s, persistence.DeadLetterDead, found.State)
				return errRollback
			}), errRollback)
		}
	}},
	{"a dead letter changes its state once, in its transaction", func(s *suite) {
		s.bury(s.load("d").Lease, letter("a", "h"))
		m := letter("a", "h").Marker()
		replayed := persistence.DeadLetterMove{Letter: m, From: persistence.DeadLetterDead, To: persistence.DeadLetterReplayed}
		require.ErrorIs(s, s.DeadLetters.MoveDeadLetter(s.ctx, replayed), persistence.ErrNoTransaction)
		require.ErrorIs(s, s.Transactor.Atomically(s.ctx, func(ctx context.Context) error {
			require.NoError(s, s.DeadLetters.MoveDeadLetter(ctx, replayed))
			return errRollback
		}), errRollback)
		require.Equal(s, persistence.DeadLetterDead, s.letter(m).State)
		require.NoError(s, s.move(replayed))
		require.Equal(s, persistence.DeadLetterReplayed, s.letter(m).State)
		require.ErrorIs(s, s.move(replayed), persistence.ErrNotFound)
		replayed.Letter = letter("nobody", "h").Marker()
		require.ErrorIs(s, s.move(replayed), persistence.ErrNotFound)
	}},
	{"a move counts an attempt and replaces the last error, or keeps both", func(s *suite) {
		s.bury(s.load("d").Lease, letter("a", "h"), letter("b", "h"))
		m := letter("a", "h").Marker()
		want := s.letter(m)
		long := strings.Repeat("é", persistence.MaxErrorBytes/2)
		for _, step := range []struct {
			from, to persistence.DeadLetterState
			attempts int
			err      string
		}{
			{persistence.DeadLetterDead, persistence.DeadLetterRequeued, 0, ""},
			{persistence.DeadLetterRequeued, persistence.DeadLetterDead, 1, long},
			{persistence.DeadLetterDead, persistence.DeadLetterDead, 0, "other"},
			{persistence.DeadLetterDead, persistence.DeadLetterDead, 0, "other"}, // nothing changes
			{persistence.DeadLetterDead, persistence.DeadLetterDead, 0, ""},
			{persistence.DeadLetterDead, persistence.DeadLetterReplayed, -1, "first"},
		} {
			require.NoError(s, s.move(persistence.DeadLetterMove{Letter: m, From: step.from, To: step.to, Attempts: step.attempts, LastError: step.err}))
			want.State = step.to
			want.Attempts += step.attempts
			if step.err != "" {
				want.LastError = step.err
			}
			require.Equal(s, want, s.letter(m))
		}
		require.ErrorIs(s, s.setState(m, persistence.DeadLetterDead, persistence.DeadLetterDead), persistence.ErrNotFound)
		require.Equal(s, 5, s.letter(letter("b", "h").Marker()).Attempts)
	}},
	{"a racing move waits: it fails if the first commits", func(s *suite) { s.raceMoves(nil, persistence.ErrNotFound) }},
	{"a racing move waits: it goes through if the first rolls back", func(s *suite) { s.raceMoves(errRollback, nil) }},
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

// raceMoves has two transactions move the same letter, and the first end in the
// given way while the second has begun.
func (s *suite) raceMoves(end, want error) {
	s.needsConcurrency()
	s.bury(s.load("d").Lease, letter("a", "h"))
	move := persistence.DeadLetterMove{Letter: letter("a", "h").Marker(), From: persistence.DeadLetterDead, To: persistence.DeadLetterReplayed}
	first := s.begin(func(ctx context.Context) error { return s.DeadLetters.MoveDeadLetter(ctx, move) })
	entered := make(chan struct{})
	second := make(chan error, 1)
	move.To = persistence.DeadLetterDiscarded
	go func() {
		second <- s.Transactor.Atomically(s.ctx, func(ctx context.Context) error {
			close(entered)
			return s.DeadLetters.MoveDeadLetter(ctx, move)
		})
	}()
	<-entered
	first.finish(end)
	require.ErrorIs(s, <-second, want)
	require.Equal(s, end == nil, s.letter(move.Letter).State == persistence.DeadLetterReplayed)
}
