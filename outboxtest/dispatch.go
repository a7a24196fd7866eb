package outboxtest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/internal/blindstore"
	"github.com/onward-go/outbox/persistence"
)

var errPoison = errors.New("poison")

// effect returns a handler that counts what it is applied to, in the state.
func (s *suite) effect(key string) events.Handler {
	return func(ctx context.Context, evt events.Event) error {
		return s.Put(ctx, key+"/"+evt.ID, "applied")
	}
}

// subscribe subscribes a handler, which must succeed.
func (s *suite) subscribe(d *events.Dispatcher, name string, h events.Handler) {
	s.Helper()
	require.NoError(s, d.Subscribe("test.Happened", name, h))
}

func (s *suite) pass(d *events.Dispatcher, want int) {
	s.Helper()
	s.settled()
	n, err := d.RunOnce(s.ctx, 100)
	require.NoError(s, err)
	require.Equal(s, want, n)
}

var dispatcherRules = []rule{
	{"committed events are delivered once, in order, each in a transaction of its own", func(s *suite) {
		s.commit(numbered("e", 5)...)
		var got []string
		d := s.dispatcher()
		s.subscribe(d, "h", func(ctx context.Context, evt events.Event) error {
			got = append(got, evt.ID)
			require.Equal(s, "account", events.AccountID(ctx))
			require.Equal(s, "test.Happened", evt.Type)
			require.Equal(s, "payload of "+evt.ID, string(evt.Payload))
			require.False(s, evt.CreatedTime.IsZero())
			return s.Put(ctx, evt.ID, "applied")
		})
		s.pass(d, 5)
		s.pass(d, 0)
		require.Equal(s, ids(numbered("e", 5)), got)
		s.wantState("e-0004", "applied")
		require.Equal(s, s.read(beginning)[4].Cursor(), s.load(events.DefaultName).Cursor)
	}},
	{"an event without handlers is passed over", func(s *suite) {
		s.commit(record("a"))
		s.pass(s.dispatcher(), 1)
		s.pass(s.dispatcher(), 0)
	}},
	{"a rewound cursor delivers again and takes no second effect", func(s *suite) {
		s.commit(numbered("e", 3)...)
		runs := 0
		d := s.dispatcher()
		s.subscribe(d, "h", func(context.Context, events.Event) error { runs++; return nil })
		s.pass(d, 3)
		require.NoError(s, s.Admin.Rewind(s.ctx, events.DefaultName, beginning))
		s.pass(d, 3)
		require.Equal(s, 3, runs)
		// A dispatcher that knows of no marker must be stopped by it, too.
		require.NoError(s, s.Admin.Rewind(s.ctx, events.DefaultName, beginning))
		blind := s.dispatcherWith(blindstore.New(s.Idempotency))
		s.subscribe(blind, "h", func(context.Context, events.Event) error { runs++; return nil })
		s.pass(blind, 3)
		require.Equal(s, 3, runs)
	}},
	{"a failing handler stops the batch, not the event's other handlers", func(s *suite) {
		s.commit(numbered("e", 3)...)
		s.settled()
		broken := true
		d := s.dispatcher()
		s.subscribe(d, "fails", func(ctx context.Context, evt events.Event) error {
			require.NoError(s, s.Put(ctx, "fails/"+evt.ID, "applied"))
			if broken && evt.ID == "e-0001" {
				return errPoison
			}
			return nil
		})
		s.subscribe(d, "works", s.effect("works"))
		n, err := d.RunOnce(s.ctx, 100)
		require.ErrorIs(s, err, errPoison)
		require.ErrorContains(s, err, "e-0001")
		require.Equal(s, 1, n)
		s.wantState("fails/e-0001", "")
		s.wantState("works/e-0001", "applied")
		s.wantState("works/e-0002", "")
		require.Len(s, s.load(events.DefaultName).Attempts, 1)
		broken = false
		s.pass(d, 2)
		s.wantState("fails/e-0001", "applied")
		s.wantState("works/e-0002", "applied")
		require.Empty(s, s.load(events.DefaultName).Attempts)
	}},
	{"an event that has failed often enough is a dead letter, and the cursor moves on", func(s *suite) {
		s.commit(numbered("e", 2)...)
		s.settled()
		runs := 0
		poison := func(ctx context.Context, evt events.Event) error {
			if evt.ID != "e-0000" {
				return s.Put(ctx, "h/"+evt.ID, "applied")
			}
			runs++
			return fmt.Errorf("%w: \xff\x00%s", errPoison, strings.Repeat("long ", 2000))
		}
		for try := 1; try <= 3; try++ { // a new dispatcher each time: the count is in the sidecar
			d := s.dispatcher(events.WithMaxAttempts(3))
			s.subscribe(d, "h", poison)
			n, err := d.RunOnce(s.ctx, 100)
			require.ErrorIs(s, err, errPoison)
			if try < 3 {
				require.NotErrorIs(s, err, events.ErrDeadLettered)
				require.Zero(s, n)
				continue
			}
			require.ErrorIs(s, err, events.ErrDeadLettered)
			require.Equal(s, 2, n)
		}
		require.Equal(s, 3, runs)
		s.wantState("h/e-0001", "applied")
		letters := s.letters(persistence.DeadLetterQuery{})
		require.Len(s, letters, 1)
		require.Equal(s, s.read(beginning)[0], letters[0].Record)
		require.Equal(s, 3, letters[0].Attempts)
		require.Equal(s, persistence.DeadLetterDead, letters[0].State)
		require.LessOrEqual(s, len(letters[0].LastError), persistence.MaxErrorBytes)
		require.Contains(s, letters[0].LastError, "poison")
		// Settled is settled, also after a rewind.
		require.NoError(s, s.Admin.Rewind(s.ctx, events.DefaultName, beginning))
		d := s.dispatcher()
		s.subscribe(d, "h", poison)
		s.pass(d, 2)
		require.Equal(s, 3, runs)
	}},
	{"a panic and runtime.Goexit of a handler are failures", func(s *suite) {
		s.commit(record("a"))
		s.settled()
		d := s.dispatcher(events.WithMaxAttempts(2))
		s.subscribe(d, "panics", func(ctx context.Context, _ events.Event) error {
			require.NoError(s, s.Put(ctx, "panics", "applied"))
			panic(errPoison)
		})
		s.subscribe(d, "exits", func(context.Context, events.Event) error { runtime.Goexit(); return nil })
		s.subscribe(d, "works", s.effect("works"))
		_, err := d.RunOnce(s.ctx, 10)
		require.ErrorIs(s, err, errPoison)
		require.ErrorContains(s, err, "Goexit")
		s.wantState("panics", "")
		s.wantState("works/a", "applied")
		n, err := d.RunOnce(s.ctx, 10)
		require.ErrorIs(s, err, events.ErrDeadLettered)
		require.Equal(s, 1, n)
		letters := s.letters(persistence.DeadLetterQuery{})
		require.Len(s, letters, 2)
		require.Contains(s, letters[1].LastError, "dispatch.go", "the stack is kept")
	}},
	{"a handler whose transaction the server ended has failed", func(s *suite) {
		needs(s, s.EndTransaction, "EndTransaction")
		s.commit(record("a"))
		s.settled()
		ended := true
		d := s.dispatcher()
		s.subscribe(d, "h", func(ctx context.Context, evt events.Event) error {
			if ended {
				_ = s.EndTransaction(ctx)
			}
			_ = s.Put(ctx, "h", "applied") // the handler swallows every error
			return nil
		})
		n, err := d.RunOnce(s.ctx, 10)
		require.Error(s, err)
		require.Zero(s, n)
		s.wantState("h", "")
		ended = false
		s.pass(d, 1)
		s.wantState("h", "applied")
	}},
	{"cancelling a pass spends no attempt and keeps what is settled", func(s *suite) {
		s.commit(numbered("e", 3)...)
		s.settled()
		ctx, cancel := context.WithCancel(s.ctx)
		d := s.dispatcher()
		s.subscribe(d, "h", func(ctx context.Context, evt events.Event) error {
			if evt.ID == "e-0001" {
				cancel()
			}
			return s.Put(context.WithoutCancel(ctx), "h/"+evt.ID, "applied")
		})
		n, err := d.RunOnce(ctx, 100)
		require.ErrorIs(s, err, context.Canceled)
		require.Equal(s, 1, n)
		state := s.load(events.DefaultName)
		require.Equal(s, s.read(beginning)[0].Cursor(), state.Cursor)
		require.Empty(s, state.Attempts)
		s.wantState("h/e-0001", "")
	}},
	{"a pass inside a transaction is refused", func(s *suite) {
		s.commit(record("a"))
		s.settled()
		require.NoError(s, s.Transactor.Atomically(s.ctx, func(ctx context.Context) error {
			_, err := s.dispatcher().RunOnce(ctx, 1)
			require.ErrorIs(s, err, persistence.ErrInTransaction)
			return nil
		}))
		s.pass(s.dispatcher(), 1)
	}},
	{"a handler may publish", func(s *suite) {
		s.commit(record("a"))
		publisher := events.NewPublisher(s.Outbox)
		d := s.dispatcher()
		s.subscribe(d, "h", func(ctx context.Context, evt events.Event) error {
			return publisher.Publish(ctx, events.Event{Type: "test.Followed", AggregateType: "User", AggregateID: "2"})
		})
		s.pass(d, 1)
		all := s.read(beginning)
		require.Len(s, all, 2)
		require.Equal(s, "account", all[1].AccountID, "the event's account is the default")
		s.pass(d, 1)
	}},
	{"a new dispatcher may start now or at a time", func(s *suite) {
		s.commit(numbered("old", 2)...)
		second := s.read(beginning)[1]
		// Handler names are global to the outbox, so each dispatcher has its own.
		count := func(handler string, opts ...events.Option) func() int {
			d := s.dispatcher(append(opts, events.WithName(handler))...)
			runs := 0
			s.subscribe(d, handler, func(context.Context, events.Event) error { runs++; return nil })
			return func() int {
				s.settled()
				_, err := d.RunOnce(s.ctx, 100)
				require.NoError(s, err)
				return runs
			}
		}
		now := count("now", events.WithStartNow())
		timed := count("time", events.WithStartTime(second.CreatedTime))
		require.Zero(s, now())
		require.Equal(s, 1, timed())
		s.commit(record("new"))
		require.Equal(s, 1, now())
		require.Equal(s, 2, timed())
	}},
	{"handlers may have all the time there is, and the lease, too", func(s *suite) {
		s.commit(record("a"))
		s.settled()
		const longest = time.Duration(math.MaxInt64)
		d := events.NewDispatcher(s.Outbox, s.Cursors, s.Transactor, s.Idempotency, events.WithHandlerTimeout(longest), events.WithLease(longest),
			events.WithBackoff(longest, longest), events.WithSubscriptionExpiry(longest), events.WithMaxAttempts(math.MaxInt))
		runs := 0
		s.subscribe(d, "h", func(context.Context, events.Event) error { runs++; return nil })
		s.subscribe(d, "fails", func(context.Context, events.Event) error { return errPoison })
		_, err := d.RunOnce(s.ctx, 10)
		require.ErrorIs(s, err, errPoison)
		require.NotErrorIs(s, err, persistence.ErrInvalid)
		require.Equal(s, 1, runs)
		_, err = d.RunOnce(s.ctx, 10)
		require.Equal(s, 1, runs)
		require.NotErrorIs(s, err, persistence.ErrInvalid)
	}},
	{"a permanent failure is a dead letter at once", func(s *suite) {
		s.commit(record("a"))
		s.settled()
		runs := 0
		d := s.dispatcher()
		s.subscribe(d, "h", func(context.Context, events.Event) error { runs++; return events.Permanent(errPoison) })
		n, err := d.RunOnce(s.ctx, 10)
		require.ErrorIs(s, err, events.ErrDeadLettered)
		require.ErrorIs(s, err, errPoison)
		require.Equal(s, 1, n)
		require.Equal(s, 1, runs)
		letters := s.letters(persistence.DeadLetterQuery{})
		require.Len(s, letters, 1)
		require.Equal(s, 1, letters[0].Attempts)
	}},
}
