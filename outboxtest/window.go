package outboxtest

import (
	"context"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/persistence"
)

var windowRules = []rule{
	{"ReadWindow returns what is committed without waiting for the mark", func(s *suite) {
		s.needsConcurrency()
		open := s.begin(func(ctx context.Context) error { return s.Outbox.Append(ctx, record("open")) })
		s.commit(record("a"))
		s.commit(record("b"))
		got, err := s.Outbox.ReadWindow(s.ctx, persistence.WindowRead{Limit: 10})
		require.NoError(s, err)
		require.Equal(s, []string{"a", "b"}, ids(got))
		frontier := got[1].Cursor()
		open.finish(nil)
		s.commit(record("c"))
		known := map[string]bool{"a": true, "b": true}
		got, err = s.Outbox.ReadWindow(s.ctx, persistence.WindowRead{
			Frontier: frontier,
			Known:    func(c persistence.Cursor) bool { return known[c.ID] },
			Limit:    10,
		})
		require.NoError(s, err)
		// A store may stamp at commit, so the late row may be the later one.
		require.ElementsMatch(s, []string{"open", "c"}, ids(got))
		require.Equal(s, "payload of open", string(got[0].Payload))
	}},
	{"ReadWindow finds what is late among what is counted", func(s *suite) {
		s.needsConcurrency()
		s.commit(record("a"))
		open := s.begin(func(ctx context.Context) error { return s.Outbox.Append(ctx, record("open")) })
		s.commit(record("b"))
		s.commit(record("c"))
		got, err := s.Outbox.ReadWindow(s.ctx, persistence.WindowRead{Limit: 10})
		require.NoError(s, err)
		require.Equal(s, []string{"a", "b", "c"}, ids(got))
		read := persistence.WindowRead{
			Counted:  got[1].Cursor(),
			Count:    2,
			Frontier: got[2].Cursor(),
			Known:    func(c persistence.Cursor) bool { return c.ID != "open" },
			Limit:    10,
		}
		got, err = s.Outbox.ReadWindow(s.ctx, read)
		require.NoError(s, err)
		require.Empty(s, got)
		open.finish(nil)
		got, err = s.Outbox.ReadWindow(s.ctx, read)
		require.NoError(s, err)
		require.Equal(s, []string{"open"}, ids(got))
	}},
	{"ReadWindow finds what holdouts have written once they commit", func(s *suite) {
		s.needsConcurrency()
		s.commit(record("a"))
		open := s.begin(func(ctx context.Context) error { return s.Outbox.Append(ctx, record("open")) })
		s.commit(record("b"))
		mark, err := s.Outbox.SafeMark(s.ctx)
		// A store that names holdouts does so once they are open for a while.
		for deadline := time.Now().Add(time.Second); len(mark.Holdouts.Transactions) == 0 && time.Now().Before(deadline); {
			require.NoError(s, err)
			mark, err = s.Outbox.SafeMark(s.ctx)
		}
		require.NoError(s, err)
		s.commit(record("c"))
		got, err := s.Outbox.ReadWindow(s.ctx, persistence.WindowRead{Limit: 10})
		require.NoError(s, err)
		require.Equal(s, []string{"a", "b", "c"}, ids(got))
		held := 0
		for _, r := range got {
			if r.CreatedTime.Before(mark.Holdouts.Beyond) {
				held++
			}
		}
		read := persistence.WindowRead{
			Counted:   got[2].Cursor(),
			Count:     3,
			Holdouts:  mark.Holdouts,
			CountHeld: held,
			Frontier:  got[2].Cursor(),
			Known:     func(c persistence.Cursor) bool { return c.ID != "open" },
			Limit:     10,
		}
		got, err = s.Outbox.ReadWindow(s.ctx, read)
		require.NoError(s, err)
		require.Empty(s, got)
		open.finish(nil)
		s.commit(record("d"))
		got, err = s.Outbox.ReadWindow(s.ctx, read)
		require.NoError(s, err)
		require.ElementsMatch(s, []string{"open", "d"}, ids(got))
	}},
	{"ReadWindow bounds what is new by count and bytes, not what is late", func(s *suite) {
		s.commit(numbered("w", 10)...)
		all := s.read(beginning)
		got, err := s.Outbox.ReadWindow(s.ctx, persistence.WindowRead{
			After:    all[0].Cursor(),
			Frontier: all[5].Cursor(),
			Known:    func(c persistence.Cursor) bool { return c == all[2].Cursor() },
			Limit:    2,
		})
		require.NoError(s, err)
		require.Equal(s, []string{"w-0001", "w-0003", "w-0004", "w-0005", "w-0006", "w-0007"}, ids(got))
		require.Equal(s, all[3], got[1], "late rows are whole rows")

		size := len(all[0].Payload)
		got, err = s.Outbox.ReadWindow(s.ctx, persistence.WindowRead{Limit: 10, MaxBytes: 2*size + 1})
		require.NoError(s, err)
		require.Equal(s, []string{"w-0000", "w-0001", "w-0002"}, ids(got), "the record that exceeds the bound is returned")
	}},
}
