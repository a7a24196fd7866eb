package outboxtest

import (
	"context"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/persistence"
)

var laneRules = []rule{
	{"a failing aggregate holds back nobody else", func(s *suite) {
		evts := numbered("e", 6)
		for i := range evts {
			evts[i].AggregateID = []string{"poisoned", "healthy"}[i%2]
		}
		s.commit(evts...)
		s.settled()
		var mu sync.Mutex
		var got []string
		broken := true
		d := s.dispatcher(events.WithConcurrency(4))
		s.subscribe(d, "h", func(ctx context.Context, evt events.Event) error {
			mu.Lock()
			defer mu.Unlock()
			if broken && evt.AggregateID == "poisoned" {
				return errPoison
			}
			got = append(got, evt.ID)
			return s.Put(ctx, evt.ID, "applied")
		})
		n, err := d.RunOnce(s.ctx, 100)
		require.ErrorIs(s, err, errPoison)
		require.Equal(s, 3, n)
		require.Equal(s, []string{"e-0001", "e-0003", "e-0005"}, got)
		require.True(s, s.load(events.DefaultName).Cursor.IsZero(), "the cursor waits")
		broken, got = false, nil
		s.pass(d, 6)
		require.Equal(s, []string{"e-0000", "e-0002", "e-0004"}, got)
		require.Equal(s, s.read(beginning)[5].Cursor(), s.load(events.DefaultName).Cursor)
		require.Empty(s, s.load(events.DefaultName).Attempts)
	}},
	{"a producer that stays open holds back nobody else's events", func(s *suite) {
		s.needsConcurrency()
		open := s.begin(func(ctx context.Context) error {
			late := record("open")
			late.AggregateID = "other"
			return s.Outbox.Append(ctx, late)
		})
		s.commit(numbered("e", 3)...)
		d := s.dispatcher()
		s.subscribe(d, "h", s.effect("h"))
		n, err := d.RunOnce(s.ctx, 100)
		require.NoError(s, err)
		require.Equal(s, 3, n)
		s.wantState("h/e-0002", "applied")
		open.finish(nil)
		s.settled()
		_, err = d.RunOnce(s.ctx, 100)
		require.NoError(s, err)
		s.wantState("h/open", "applied")
		s.pass(d, 0)
	}},
	{"a row that is stamped behind the cursor is found and delivered", func(s *suite) {
		if s.Insert == nil {
			s.Skip("nobody else can write")
		}
		s.commit(numbered("e", 5)...)
		d := s.dispatcher()
		s.subscribe(d, "h", s.effect("h"))
		s.pass(d, 5)
		rogue := record("rogue")
		rogue.CreatedTime = s.read(beginning)[0].CreatedTime.Add(-30 * time.Second)
		require.NoError(s, s.Insert(s.ctx, rogue))
		s.pass(d, 0) // its last audit was a moment ago
		s.wantState("h/rogue", "")
		for range 2 { // processes that have just come up
			d = s.dispatcher()
			s.subscribe(d, "h", s.effect("h"))
			_, err := d.RunOnce(s.ctx, 10)
			require.NoError(s, err)
			s.wantState("h/rogue", "applied")
		}
		require.Zero(s, d.Stats().LateEvents, "it is counted now")
	}},
	{"a row that was deleted by hand hides no other that is stamped behind the cursor", func(s *suite) {
		if s.Insert == nil || s.Delete == nil {
			s.Skip("nobody else can write")
		}
		s.commit(numbered("e", 5)...)
		d := s.dispatcher()
		s.subscribe(d, "h", s.effect("h"))
		s.pass(d, 5)
		first := s.read(beginning)[0].Cursor()
		rogue := record("rogue")
		rogue.CreatedTime = first.CreatedTime.Add(-time.Microsecond)
		if persistence.BucketStart(rogue.CreatedTime) != persistence.BucketStart(first.CreatedTime) {
			rogue.CreatedTime = first.CreatedTime.Add(time.Microsecond)
		}
		require.NoError(s, s.Insert(s.ctx, rogue))
		require.NoError(s, s.Delete(s.ctx, first))
		for _, late := range []int64{1, 0} { // processes that have just come up
			d = s.dispatcher()
			s.subscribe(d, "h", s.effect("h"))
			_, err := d.RunOnce(s.ctx, 10)
			require.NoError(s, err)
			s.wantState("h/rogue", "applied")
			require.Equal(s, late, d.Stats().LateEvents)
		}
	}},
}
