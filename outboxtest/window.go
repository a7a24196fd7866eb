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
		require.Equal(s, []string{"a", "b"}, ids(got.Records))
		frontier := got.Records[1].Cursor()
		open.finish(nil)
		s.commit(record("c"))
		known := map[string]bool{"a": true, "b": true}
		got, err = s.Outbox.ReadWindow(s.ctx, persistence.WindowRead{
			Frontier: frontier,
			Known:    func(c persistence.Cursor) bool { return known[c.ID] }, KnownCount: 2,
			LateLimit: 10,
			Limit:     10,
		})
		require.NoError(s, err)
		// A store may stamp at commit, so the late row may be the later one.
		require.ElementsMatch(s, []string{"open", "c"}, ids(got.Records))
		require.Equal(s, "payload of open", string(got.Records[0].Payload))
	}},
	{"ReadWindow finds what is late among what is counted", func(s *suite) {
		s.needsConcurrency()
		s.commit(record("a"))
		open := s.begin(func(ctx context.Context) error { return s.Outbox.Append(ctx, record("open")) })
		s.commit(record("b"))
		s.commit(record("c"))
		got, err := s.Outbox.ReadWindow(s.ctx, persistence.WindowRead{Limit: 10})
		require.NoError(s, err)
		require.Equal(s, []string{"a", "b", "c"}, ids(got.Records))
		read := persistence.WindowRead{
			Counted:    got.Records[1].Cursor(),
			Count:      2,
			Frontier:   got.Records[2].Cursor(),
			Known:      func(c persistence.Cursor) bool { return c.ID != "open" },
			KnownCount: 3, LateLimit: 10, Limit: 10,
		}
		got, err = s.Outbox.ReadWindow(s.ctx, read)
		require.NoError(s, err)
		require.Empty(s, got.Records)
		open.finish(nil)
		got, err = s.Outbox.ReadWindow(s.ctx, read)
		require.NoError(s, err)
		require.Equal(s, []string{"open"}, ids(got.Records))
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
		require.Equal(s, []string{"a", "b", "c"}, ids(got.Records))
		held := 0
		for _, r := range got.Records {
			if r.CreatedTime.Before(mark.Holdouts.Beyond) {
				held++
			}
		}
		read := persistence.WindowRead{
			Counted:    got.Records[2].Cursor(),
			Count:      3,
			Holdouts:   mark.Holdouts,
			CountHeld:  held,
			Frontier:   got.Records[2].Cursor(),
			Known:      func(c persistence.Cursor) bool { return c.ID != "open" },
			KnownCount: 3, LateLimit: 10, Limit: 10,
		}
		got, err = s.Outbox.ReadWindow(s.ctx, read)
		require.NoError(s, err)
		require.Empty(s, got.Records)
		open.finish(nil)
		s.commit(record("d"))
		got, err = s.Outbox.ReadWindow(s.ctx, read)
		require.NoError(s, err)
		require.ElementsMatch(s, []string{"open", "d"}, ids(got.Records))
	}},
	{"ReadWindow returns a page of what is late and new, bounded by count and bytes", func(s *suite) {
		s.commit(numbered("w", 10)...)
		all := s.read(beginning)
		read := persistence.WindowRead{
			After:      all[0].Cursor(),
			Frontier:   all[5].Cursor(),
			Known:      func(c persistence.Cursor) bool { return c == all[2].Cursor() },
			KnownCount: 1,
			LateLimit:  10,
			Limit:      2,
		}
		page := s.readPage(read)
		require.Equal(s, []string{"w-0001", "w-0003", "w-0004", "w-0005", "w-0006", "w-0007"}, ids(page.Records))
		require.Equal(s, all[3], page.Records[1], "late rows are whole rows")
		require.Equal(s, all[7].Cursor(), page.Complete)
		require.True(s, page.More)

		read.Limit = 10
		page = s.readPage(read)
		require.Equal(s, all[9].Cursor(), page.Complete)
		require.False(s, page.More)

		size := len(all[0].Payload)
		page = s.readPage(persistence.WindowRead{Limit: 10, MaxBytes: 2*size + 1})
		require.Equal(s, []string{"w-0000", "w-0001", "w-0002"}, ids(page.Records), "the record that exceeds the bound is returned")
		require.True(s, page.More)
		require.Equal(s, all[2].Cursor(), page.Complete)
	}},
	{"a page of ReadWindow that leaves out what is late returns nothing behind it, and says where it ends", func(s *suite) {
		s.commit(numbered("w", 10)...)
		all := s.read(beginning)
		known := map[persistence.Cursor]bool{all[1].Cursor(): true, all[5].Cursor(): true, all[7].Cursor(): true}
		size := len(all[0].Payload)
		for name, bound := range map[string]persistence.WindowRead{
			"count": {LateLimit: 2, Limit: 10},
			"bytes": {LateLimit: 10, Limit: 10, MaxBytes: 2 * size},
			"both":  {LateLimit: 2, Limit: 0, MaxBytes: 2*size - 1},
			"counted, with a number of known ones that is too low": {LateLimit: 1, Limit: 10, Counted: all[1].Cursor(), Count: 1},
		} {
			read := bound
			read.Frontier, read.Known, read.KnownCount = all[7].Cursor(), func(c persistence.Cursor) bool { return known[c] }, len(known)
			if bound.Count > 0 {
				read.After, read.KnownCount = all[0].Cursor(), 1
			}
			page := s.readPage(read)
			require.True(s, page.More, name)
			require.NotEmpty(s, page.Records, name)
			first := all[0]
			if bound.Count > 0 {
				first = all[2]
			}
			require.Equal(s, first, page.Records[0], name)
			// Whatever is not known and not returned lies after what is, and after the end.
			last := page.Records[len(page.Records)-1].Cursor()
			returned := map[persistence.Cursor]bool{}
			for _, r := range page.Records {
				returned[r.Cursor()] = true
			}
			for _, r := range all {
				c := r.Cursor()
				if !known[c] && !returned[c] && c.Compare(read.After) > 0 {
					require.Positive(s, c.Compare(last), name)
					require.Positive(s, c.Compare(page.Complete), name)
				}
			}
			require.GreaterOrEqual(s, page.Complete.Compare(last.Preceding()), 0, name)
			require.Negative(s, last.Compare(all[7].Cursor()), name)
		}
		// Page by page all is returned, once and in order.
		var got []string
		read := persistence.WindowRead{LateLimit: 2, Limit: 1, Frontier: all[7].Cursor(), Known: func(c persistence.Cursor) bool { return known[c] }}
		for more := true; more; {
			read.KnownCount = len(known)
			page := s.readPage(read)
			require.LessOrEqual(s, len(page.Records), 3)
			for _, r := range page.Records {
				known[r.Cursor()] = true
				if r.Cursor().Compare(read.Frontier) > 0 {
					read.Frontier = r.Cursor()
				}
			}
			got, more = append(got, ids(page.Records)...), page.More
		}
		require.Equal(s, []string{"w-0000", "w-0002", "w-0003", "w-0004", "w-0006", "w-0008", "w-0009"}, got)
	}},
	{"ReadWindow leaves payloads out where it is asked to", func(s *suite) {
		s.commit(numbered("w", 4)...)
		all := s.read(beginning)
		page := s.readPage(persistence.WindowRead{
			Frontier: all[1].Cursor(), LateLimit: 10, Limit: 10, MaxBytes: 1, WithoutPayload: true,
		})
		for i := range all {
			all[i].Payload = nil
		}
		require.Equal(s, all, page.Records)
	}},
	{"ReadWindow tells the database's clock", func(s *suite) {
		before, err := s.Outbox.SafeMark(s.ctx)
		require.NoError(s, err)
		page := s.readPage(persistence.WindowRead{})
		after, err := s.Outbox.SafeMark(s.ctx)
		require.NoError(s, err)
		require.False(s, page.Now.Before(before.Now), page.Now)
		require.False(s, page.Now.After(after.Now), page.Now)
		require.Equal(s, time.UTC, page.Now.Location())
		require.Empty(s, page.Records)
	}},
}

func (s *suite) readPage(read persistence.WindowRead) persistence.WindowPage {
	s.Helper()
	page, err := s.Outbox.ReadWindow(s.ctx, read)
	require.NoError(s, err)
	return page
}
