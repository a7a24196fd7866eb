package outboxtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/persistence"
)

func subscription(handler string) persistence.Subscription {
	return persistence.Subscription{EventType: "test.Happened", Handler: handler}
}

func (s *suite) register(dispatcher string, subscriptions ...persistence.Subscription) {
	s.Helper()
	require.NoError(s, s.Cursors.Register(s.ctx, dispatcher, subscriptions...))
}

func (s *suite) serve(lease persistence.Lease, subscriptions ...persistence.Subscription) []persistence.SubscriptionState {
	s.Helper()
	states, err := s.Cursors.Serve(s.ctx, lease, subscriptions...)
	require.NoError(s, err)
	return states
}

func (s *suite) caughtUp(lease persistence.Lease, to persistence.Cursor, subscriptions ...persistence.Subscription) {
	s.Helper()
	for range 2 { // to save the same twice is to save it once
		require.NoError(s, s.Cursors.Save(s.ctx, lease, persistence.Progress{Cursor: to, CaughtUp: subscriptions}))
	}
}

func (s *suite) subscriptions() []persistence.SubscriptionState {
	s.Helper()
	states, err := s.Cursors.ListSubscriptions(s.ctx)
	require.NoError(s, err)
	return states
}

// wantBehind requires the positions of all handlers that are behind.
func (s *suite) wantBehind(want map[string]persistence.Cursor) {
	s.Helper()
	got := map[string]persistence.Cursor{}
	for _, sub := range s.subscriptions() {
		if sub.Behind != nil {
			got[sub.Handler] = *sub.Behind
		}
	}
	require.Equal(s, want, got)
}

// now returns the database's clock.
func (s *suite) now() time.Time {
	s.Helper()
	mark, err := s.Outbox.SafeMark(s.ctx)
	require.NoError(s, err)
	return mark.Now
}

var subscriptionRules = []rule{
	{"a subscription starts, and is behind, where its dispatcher is", func(s *suite) {
		a, b := subscription("a"), subscription("b")
		require.ErrorIs(s, s.Cursors.Register(s.ctx, "d", a), persistence.ErrNotFound)
		require.Empty(s, s.subscriptions())
		lease := s.load("d").Lease
		s.register("d")
		s.register("d", b, b)
		s.save(lease, at(5, "x"))
		s.register("d", a, b)
		first, fifth := beginning, at(5, "x")
		require.Equal(s, []persistence.SubscriptionState{
			{Subscription: a, Dispatcher: "d", Start: fifth, Behind: &fifth},
			{Subscription: b, Dispatcher: "d", Start: first, Behind: &first},
		}, s.subscriptions())
	}},
	{"a subscription starts where it is to, which its dispatcher's cursor has passed or not", func(s *suite) {
		for i, cursor := range []persistence.Cursor{beginning, at(2, "x"), at(9, "x")} {
			name := fmt.Sprint("d", i)
			s.save(s.load(name).Lease, cursor)
			for j, begin := range []persistence.Cursor{beginning, at(5, "x")} {
				sub := subscription(fmt.Sprintf("%d%d", i, j))
				left, err := s.Cursors.RegisterAt(s.ctx, name, persistence.Beginning{At: begin}, sub)
				require.NoError(s, err)
				require.False(s, left)
				s.register(name, sub)
				_, err = s.Cursors.RegisterAt(s.ctx, name, persistence.Beginning{At: at(7, "")}, sub)
				require.NoError(s, err)
				states := s.serve(s.load(name).Lease, sub)
				require.Equal(s, begin, states[0].Start, "and stays there")
				require.Equal(s, &begin, states[0].Behind)
			}
		}
		lease, ahead := s.load("ahead").Lease, subscription("ahead")
		_, err := s.Cursors.RegisterAt(s.ctx, "ahead", persistence.Beginning{At: at(9, "x")}, ahead)
		require.NoError(s, err)
		s.caughtUp(lease, beginning, ahead)
		s.serve(lease)
		require.Equal(s, at(9, "x"), *s.serve(lease, ahead)[0].Behind, "nobody is behind its start")
		_, err = s.Cursors.RegisterAt(s.ctx, "nobody", persistence.Beginning{}, subscription("h"))
		require.ErrorIs(s, err, persistence.ErrNotFound)
		_, err = s.Cursors.RegisterAt(s.ctx, "d1", persistence.Beginning{Settle: true}, subscription("00"))
		require.ErrorIs(s, err, persistence.ErrInvalid, "it belongs to d0")
		_, err = s.Cursors.RegisterAt(s.ctx, "d1", persistence.Beginning{At: persistence.Cursor{CreatedTime: time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC)}}, subscription("h"))
		require.ErrorIs(s, err, persistence.ErrInvalid)
	}},
	{"what is visible when a subscription is made to settle it gets its markers", func(s *suite) {
		other := record("other")
		other.EventType = "test.Happened "
		s.commit(record("a"), other, record("b"))
		rows := s.read(beginning)
		require.Len(s, rows, 3)
		lease := s.load("d").Lease
		start := rows[0].Cursor()
		h, late := subscription("h"), subscription("late")
		left, err := s.Cursors.RegisterAt(s.ctx, "d", persistence.Beginning{At: start, Settle: true}, h)
		require.NoError(s, err)
		require.False(s, left)
		s.commit(record("c"))
		_, err = s.Cursors.RegisterAt(s.ctx, "d", persistence.Beginning{At: start, Settle: true}, h, h)
		require.NoError(s, err)
		rows = s.read(beginning)
		settled := func(handler string) (ids []string) {
			for _, r := range rows {
				applied, err := s.Idempotency.Applied(s.ctx, persistence.Marker{Event: r.Cursor(), Handler: handler})
				require.NoError(s, err)
				if applied[0] {
					ids = append(ids, r.ID)
				}
			}
			return ids
		}
		require.Equal(s, []string{"b"}, settled("h"), "neither another type, nor what lies before, nor what has come since")
		require.Equal(s, start, s.serve(lease, h)[0].Start)

		s.save(lease, rows[2].Cursor())
		_, err = s.Cursors.RegisterAt(s.ctx, "d", persistence.Beginning{At: start, Settle: true}, late)
		require.NoError(s, err)
		require.Equal(s, rows[2].Cursor(), s.serve(lease, late)[0].Start, "the cursor is further")
		require.Equal(s, []string{"c"}, settled("late"))

		s.serve(lease, late)
		behind := map[string]persistence.Cursor{}
		for _, sub := range s.subscriptions() {
			if sub.Behind != nil {
				behind[sub.Handler] = *sub.Behind
				require.GreaterOrEqual(s, sub.Behind.Compare(sub.Start), 0, "nobody is behind its start")
			}
		}
		require.NotEmpty(s, behind)
	}},
	{"subscriptions are kept byte for byte, and listed by event type, then handler", func(s *suite) {
		s.load("d")
		want := []persistence.Subscription{
			{EventType: "T", Handler: "h"},
			{EventType: "t", Handler: "H"},
			{EventType: "t", Handler: "h"},
			{EventType: "t", Handler: "h "},
			{EventType: "t ", Handler: "h"},
			{EventType: `t"<&\`, Handler: "h'"},
			{EventType: strings.Repeat("é", 127), Handler: strings.Repeat("ü", 64)},
		}
		for i := range want { // in another order
			s.register("d", want[(i*3+2)%len(want)])
		}
		s.register("d", want...)
		var got []persistence.Subscription
		for _, sub := range s.subscriptions() {
			got = append(got, sub.Subscription)
		}
		require.Equal(s, want, got)
		states := s.serve(s.load("d").Lease, want...)
		require.Len(s, states, len(want))
		for i, sub := range states {
			require.Equal(s, want[i], sub.Subscription)
		}
	}},
	{"a subscription belongs to one dispatcher, and bad ones are refused together with good ones", func(s *suite) {
		s.load("billing")
		s.load("mail")
		s.register("billing", subscription("h"))
		before := s.subscriptions()
		err := s.Cursors.Register(s.ctx, "mail", subscription("a"), subscription("h"), subscription("z"))
		require.ErrorIs(s, err, persistence.ErrInvalid)
		for _, named := range []string{`"h"`, `"test.Happened"`, `"billing"`, "forget"} {
			require.ErrorContains(s, err, named)
		}
		for _, bad := range []persistence.Subscription{
			{}, {EventType: "t"}, {Handler: "h"}, {EventType: "a\x00", Handler: "h"},
			{EventType: strings.Repeat("x", 256), Handler: "h"}, {EventType: "t", Handler: strings.Repeat("x", 129)},
		} {
			require.ErrorIs(s, s.Cursors.Register(s.ctx, "mail", subscription("a"), bad), persistence.ErrInvalid, bad)
		}
		require.Equal(s, before, s.subscriptions(), "nothing is written")
		_, err = s.Cursors.Serve(s.ctx, s.load("mail").Lease, subscription("h"))
		require.ErrorIs(s, err, persistence.ErrNotFound)
		require.NoError(s, s.Admin.Forget(s.ctx, "billing"))
		s.register("mail", subscription("h"))
	}},
	{"several replicas may register at once", func(s *suite) {
		const dispatchers, replicas, handlers = 3, 3, 8
		results := make(chan error)
		for d := range dispatchers {
			name := fmt.Sprint("d", d)
			s.load(name)
			for range replicas {
				var own []persistence.Subscription // of all dispatchers mixed up in the table
				for h := range handlers {
					own = append(own, subscription(fmt.Sprintf("%d-%s", h, name)))
				}
				rand.Shuffle(len(own), func(i, j int) { own[i], own[j] = own[j], own[i] })
				go func() { results <- s.Cursors.Register(s.ctx, name, own...) }()
			}
		}
		for range dispatchers * replicas {
			require.NoError(s, <-results)
		}
		require.Len(s, s.subscriptions(), dispatchers*handlers)
	}},
	{"handlers that are not served are behind from the cursor on", func(s *suite) {
		lease := s.load("d").Lease
		a, b, c := subscription("a"), subscription("b"), subscription("c")
		s.register("d", a, b, c)
		other := s.load("other").Lease
		s.register("other", subscription("o"), subscription("p"))
		s.caughtUp(other, beginning, subscription("p"))
		s.caughtUp(lease, at(5, "x"), a, b, c)
		s.wantBehind(map[string]persistence.Cursor{"o": beginning})
		states := s.serve(lease, c, a, c)
		require.Equal(s, []string{"c", "a", "c"}, []string{states[0].Handler, states[1].Handler, states[2].Handler})
		require.Nil(s, states[0].Behind)
		require.Equal(s, "d", states[0].Dispatcher)
		s.wantBehind(map[string]persistence.Cursor{"b": at(5, "x"), "o": beginning})

		s.save(lease, at(9, "y"))
		_, err := s.Cursors.Serve(s.ctx, lease, b, subscription("unknown"))
		require.ErrorIs(s, err, persistence.ErrNotFound)
		s.wantBehind(map[string]persistence.Cursor{"b": at(5, "x"), "o": beginning})
		fifth := at(5, "x")
		require.Equal(s, []persistence.SubscriptionState{{Subscription: b, Dispatcher: "d", Behind: &fifth}}, s.serve(lease, b))
		s.wantBehind(map[string]persistence.Cursor{"a": at(9, "y"), "b": at(5, "x"), "c": at(9, "y"), "o": beginning})
		require.Empty(s, s.serve(lease))
		s.wantBehind(map[string]persistence.Cursor{"a": at(9, "y"), "b": at(5, "x"), "c": at(9, "y"), "o": beginning})
	}},
	{"a handler that was behind catches up, and never falls back", func(s *suite) {
		lease := s.load("d").Lease
		a, b := subscription("a"), subscription("b")
		s.register("d", a, b)
		s.load("other")
		s.register("other", subscription("o"))
		s.save(lease, at(9, "x"))
		s.caughtUp(lease, at(5, "x"), a, subscription("o"), subscription("unknown"))
		s.wantBehind(map[string]persistence.Cursor{"a": at(5, "x"), "b": beginning, "o": beginning})
		s.caughtUp(lease, at(5, "a"), a)
		s.wantBehind(map[string]persistence.Cursor{"a": at(5, "x"), "b": beginning, "o": beginning})
		s.caughtUp(lease, at(9, "x"), a)
		s.wantBehind(map[string]persistence.Cursor{"b": beginning, "o": beginning})
		s.caughtUp(lease, at(6, "x"), a, b)
		s.wantBehind(map[string]persistence.Cursor{"b": at(6, "x"), "o": beginning})
		s.caughtUp(lease, at(11, "x"), b) // which moves the cursor, too
		s.wantBehind(map[string]persistence.Cursor{"o": beginning})
		require.Equal(s, at(11, "x"), s.load("d").Cursor)
	}},
	{"a rewound dispatcher rewinds its subscriptions", func(s *suite) {
		lease := s.load("d").Lease
		a, b, c := subscription("a"), subscription("b"), subscription("c")
		s.register("d", a)
		s.save(lease, at(5, "x"))
		s.register("d", b)
		s.save(lease, at(9, "x"))
		s.register("d", c)
		s.save(s.load("other").Lease, at(9, "x"))
		s.register("other", subscription("o"))
		require.NoError(s, s.Admin.Rewind(s.ctx, "d", at(7, "x")))
		start := map[string]persistence.Cursor{}
		for _, sub := range s.subscriptions() {
			start[sub.Handler] = sub.Start
		}
		require.Equal(s, map[string]persistence.Cursor{"a": beginning, "b": at(5, "x"), "c": at(7, "x"), "o": at(9, "x")}, start)
		s.wantBehind(map[string]persistence.Cursor{"a": beginning, "b": at(5, "x"), "o": at(9, "x")})
		require.NoError(s, s.Admin.Rewind(s.ctx, "d", at(5, "x")))
		s.wantBehind(map[string]persistence.Cursor{"a": beginning, "o": at(9, "x")})
	}},
	{"a stale token, or another owner with the same token, writes nothing", func(s *suite) {
		s.load("d")
		zombie, err := s.Cursors.Acquire(s.ctx, "d", "zombie", 0)
		require.NoError(s, err)
		heir, err := s.Cursors.Acquire(s.ctx, "d", "heir", time.Hour)
		require.NoError(s, err)
		s.register("d", subscription("a"), subscription("b"))
		s.caughtUp(heir, at(5, "x"), subscription("a"))
		s.serve(heir, subscription("a"))
		_, err = s.Cursors.RecordFailure(s.ctx, heir, persistence.Failure{Event: at(6, "x"), Handler: "a"})
		require.NoError(s, err)
		subscriptions, state := s.subscriptions(), s.load("d")
		for name, call := range map[string]func(persistence.Lease) error{
			"Serve": func(l persistence.Lease) error {
				_, err := s.Cursors.Serve(s.ctx, l, subscription("b"))
				return err
			},
			"Prune": func(l persistence.Lease) error { _, err := s.Cursors.Prune(s.ctx, l, 0); return err },
			"catching up": func(l persistence.Lease) error {
				return s.Cursors.Save(s.ctx, l, persistence.Progress{CaughtUp: []persistence.Subscription{subscription("b")}, Cursor: at(9, "x")})
			},
			"counts": func(l persistence.Lease) error {
				return s.Cursors.Save(s.ctx, l, persistence.Progress{Counts: buckets(1)})
			},
			"settled failures": func(l persistence.Lease) error {
				return s.Cursors.Save(s.ctx, l, persistence.Progress{Settled: []persistence.Marker{{Event: at(6, "x"), Handler: "a"}}})
			},
			"a release": func(l persistence.Lease) error { return s.Cursors.Release(s.ctx, l) },
			"a dead letter": func(l persistence.Lease) error {
				return s.Transactor.Atomically(s.ctx, func(ctx context.Context) error {
					return s.Cursors.AddDeadLetter(ctx, l, letter("z", "h"))
				})
			},
			"a counted failure": func(l persistence.Lease) error {
				_, err := s.Cursors.RecordFailure(s.ctx, l, persistence.Failure{Event: at(6, "x"), Handler: "a", Error: "new", Counted: true})
				return err
			},
		} {
			require.ErrorIs(s, call(zombie), persistence.ErrLeaseLost, name)
			require.ErrorIs(s, call(persistence.Lease{Dispatcher: "nobody"}), persistence.ErrLeaseLost, name)
			require.ErrorIs(s, call(persistence.Lease{Dispatcher: "d", Owner: zombie.Owner, Token: heir.Token}), persistence.ErrLeaseLost, name)
			require.Equal(s, subscriptions, s.subscriptions(), name)
			require.Equal(s, state, s.load("d"), name)
			require.Empty(s, s.counts("d"), name)
			require.Empty(s, s.letters(persistence.DeadLetterQuery{}), name)
		}
	}},
	{"subscriptions take no part in the context's transaction", func(s *suite) {
		lease := s.load("d").Lease
		ran := 0
		require.ErrorIs(s, s.Transactor.Atomically(s.ctx, func(ctx context.Context) error {
			for _, call := range []func() error{
				func() error { return s.Cursors.Register(ctx, "d", subscription("a"), subscription("b")) },
				func() error { _, err := s.Cursors.Serve(ctx, lease, subscription("a")); return err },
				func() error {
					return s.Cursors.Save(ctx, lease, persistence.Progress{
						Cursor: at(5, "x"), CaughtUp: []persistence.Subscription{subscription("a")}, Counts: buckets(1),
					})
				},
				func() error { _, err := s.Cursors.Prune(ctx, lease, time.Hour); return err },
			} {
				err := call()
				if err != nil && (s.OneWriter || s.OneConnection) {
					require.ErrorIs(s, err, persistence.ErrInTransaction, "it must refuse, not wait")
					continue
				}
				require.NoError(s, err)
				ran++
			}
			return errRollback
		}), errRollback)
		if ran == 0 {
			require.Empty(s, s.subscriptions())
			return
		}
		require.Equal(s, 4, ran)
		s.wantBehind(map[string]persistence.Cursor{"b": beginning})
		require.Equal(s, buckets(1), s.counts("d"))
	}},
}
