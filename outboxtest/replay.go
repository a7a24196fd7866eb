package outboxtest

import (
	"context"
	"runtime"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/internal/blindstore"
	"github.com/onward-go/outbox/persistence"
)

// patient is a handler that fails with what broken holds, and is mended when
// that is empty.
type patient struct {
	s      *suite
	broken atomic.Value // func() error
	runs   atomic.Int32
}

func (p *patient) handle(ctx context.Context, evt events.Event) error {
	p.runs.Add(1)
	if err := p.s.Put(ctx, "h/"+evt.ID, "applied"); err != nil {
		return err
	}
	if broken := p.broken.Load().(func() error); broken != nil {
		return broken()
	}
	return nil
}

func (p *patient) breakWith(fn func() error) { p.broken.Store(fn) }
func (p *patient) mend()                     { p.breakWith(nil) }

// deadLetters delivers the records to a handler that is broken, and mends it.
func (s *suite) deadLetters(records ...persistence.Record) (*events.Dispatcher, *patient, []persistence.DeadLetter) {
	s.Helper()
	s.commit(records...)
	p := &patient{s: s}
	p.breakWith(func() error { return events.Permanent(errPoison) })
	d := s.dispatcher()
	s.subscribe(d, "h", p.handle)
	s.settled()
	_, err := d.RunOnce(s.ctx, 100)
	require.ErrorIs(s, err, events.ErrDeadLettered)
	letters := s.letters(persistence.DeadLetterQuery{})
	require.Len(s, letters, len(records))
	p.mend()
	p.runs.Store(0)
	return d, p, letters
}

func (s *suite) operator() *events.DeadLetters {
	return events.NewDeadLetters(s.DeadLetters, s.Transactor)
}

// requeuePass makes a pass that delivers nothing, and replays.
func (s *suite) requeuePass(d *events.Dispatcher) error {
	s.Helper()
	_, err := d.RunOnce(s.ctx, 100)
	return err
}

var replayRules = []rule{
	{"a dead letter is replayed once, in the transaction of its handler", func(s *suite) {
		d, p, letters := s.deadLetters(record("a"))
		m := letters[0].Marker()
		p.breakWith(func() error { return errPoison })
		require.ErrorIs(s, d.Replay(s.ctx, m), errPoison)
		s.wantState("h/a", "")
		want := letters[0]
		want.Attempts++
		want.LastError = "poison"
		require.Equal(s, want, s.letter(m))
		p.mend()
		require.NoError(s, d.Replay(s.ctx, m))
		s.wantState("h/a", "applied")
		want.State = persistence.DeadLetterReplayed
		require.Equal(s, want, s.letter(m))
		require.ErrorIs(s, d.Replay(s.ctx, m), events.ErrLetterState)
		require.EqualValues(s, 2, p.runs.Load())
		// Nor is it delivered again.
		require.NoError(s, s.Admin.Rewind(s.ctx, events.DefaultName, beginning))
		s.pass(d, 1)
		require.EqualValues(s, 2, p.runs.Load())
	}},
	{"a replay sees the event, the account and a transaction as a delivery does", func(s *suite) {
		d, _, letters := s.deadLetters(record("a"))
		other := s.dispatcher()
		s.subscribe(other, "h", func(ctx context.Context, evt events.Event) error {
			r := letters[0].Record
			require.Equal(s, events.Event{ID: r.ID, Type: r.EventType, AccountID: r.AccountID, AggregateType: r.AggregateType,
				AggregateID: r.AggregateID, Payload: r.Payload, CreatedTime: r.CreatedTime}, evt)
			require.Equal(s, "account", events.AccountID(ctx))
			require.ErrorIs(s, d.Replay(ctx, letters[0].Marker()), persistence.ErrInTransaction)
			return events.NewPublisher(s.Outbox).Publish(ctx, events.Event{ID: "b", Type: "test.Other", AggregateType: "User", AggregateID: "1"})
		})
		require.NoError(s, other.Replay(s.ctx, letters[0].Marker()))
		s.wantIDs("a", "b")
	}},
	{"a panic and runtime.Goexit of a handler are failures of its replay, and errors are cut", func(s *suite) {
		d, p, letters := s.deadLetters(record("a"))
		m := letters[0].Marker()
		for i, broken := range []func() error{
			func() error { panic("\xff\x00" + strings.Repeat("é", persistence.MaxErrorBytes)) },
			func() error { runtime.Goexit(); return nil },
		} {
			p.breakWith(broken)
			require.Error(s, d.Replay(s.ctx, m))
			s.wantState("h/a", "")
			l := s.letter(m)
			require.Equal(s, letters[0].Attempts+i+1, l.Attempts)
			require.Equal(s, persistence.DeadLetterDead, l.State)
			require.Contains(s, l.LastError, []string{"panicked", "Goexit"}[i])
			require.True(s, utf8.ValidString(l.LastError))
			require.LessOrEqual(s, len(l.LastError), persistence.MaxErrorBytes)
		}
	}},
	{"a requeued letter is replayed by the next pass", func(s *suite) {
		d, p, letters := s.deadLetters(numbered("e", 3)...)
		for _, l := range letters[:2] {
			require.NoError(s, s.operator().Requeue(s.ctx, l.Marker()))
		}
		require.NoError(s, s.requeuePass(d))
		require.NoError(s, s.requeuePass(d))
		require.EqualValues(s, 2, p.runs.Load())
		for i, l := range letters {
			want := l
			if i < 2 {
				want.State = persistence.DeadLetterReplayed
				s.wantState("h/"+l.Record.ID, "applied")
			}
			require.Equal(s, want, s.letter(l.Marker()))
		}
	}},
	{"a requeued letter that fails is dead again, with one attempt more", func(s *suite) {
		d, p, letters := s.deadLetters(record("a"))
		m := letters[0].Marker()
		p.breakWith(func() error {
			if l := s.letters; !s.OneConnection {
				found := l(persistence.DeadLetterQuery{})
				require.Equal(s, persistence.DeadLetterDead, found[0].State, "if the process ends now")
				require.Contains(s, found[0].LastError, "has ended")
				require.Equal(s, 2, found[0].Attempts)
			}
			return errPoison
		})
		require.NoError(s, s.operator().Requeue(s.ctx, m))
		require.ErrorIs(s, s.requeuePass(d), errPoison)
		want := letters[0]
		want.Attempts, want.LastError = 2, "poison"
		require.Equal(s, want, s.letter(m))
		require.NoError(s, s.requeuePass(d))
		require.EqualValues(s, 1, p.runs.Load())
		s.wantState("h/a", "")
	}},
	{"of two replays that race one has an effect", func(s *suite) {
		s.needsConcurrency()
		first, p, letters := s.deadLetters(record("a"))
		m := letters[0].Marker()
		entered, asked := make(chan struct{}), make(chan struct{})
		p.breakWith(func() error {
			close(entered)
			<-asked
			return nil
		})
		second := events.NewDispatcher(s.Outbox, movingCursors{s.Cursors, func() { close(asked) }}, s.Transactor, s.Idempotency)
		s.subscribe(second, "h", p.handle)
		results := make(chan error, 1)
		go func() { results <- first.Replay(s.ctx, m) }()
		<-entered
		require.ErrorIs(s, second.Replay(s.ctx, m), events.ErrLetterState)
		require.NoError(s, <-results)
		require.EqualValues(s, 1, p.runs.Load())
		s.wantState("h/a", "applied")
	}},
	{"a replay that races with one that fails goes on in its place", func(s *suite) {
		s.needsConcurrency()
		first, p, letters := s.deadLetters(record("a"))
		m := letters[0].Marker()
		entered, asked := make(chan struct{}), make(chan struct{})
		p.breakWith(func() error {
			if p.runs.Load() > 1 {
				return nil
			}
			close(entered)
			<-asked
			return errPoison
		})
		second := events.NewDispatcher(s.Outbox, movingCursors{s.Cursors, func() { close(asked) }}, s.Transactor, s.Idempotency)
		s.subscribe(second, "h", p.handle)
		results := make(chan error, 1)
		go func() { results <- first.Replay(s.ctx, m) }()
		<-entered
		require.NoError(s, second.Replay(s.ctx, m))
		require.ErrorIs(s, <-results, errPoison)
		require.Equal(s, persistence.DeadLetterReplayed, s.letter(m).State)
		s.wantState("h/a", "applied")
	}},
	{"a replay while the event is delivered again takes effect once", func(s *suite) {
		s.needsConcurrency()
		d, p, letters := s.deadLetters(record("a"))
		m := letters[0].Marker()
		require.NoError(s, s.operator().Requeue(s.ctx, m))
		require.NoError(s, s.Admin.Rewind(s.ctx, events.DefaultName, beginning))
		// In the middle of the replay everything else comes by: a delivery that
		// knows of no marker, and the dispatcher's own replay.
		var others error
		other := s.dispatcherWith(blindstore.New(s.Idempotency))
		s.subscribe(other, "h", p.handle)
		p.breakWith(func() error {
			if p.runs.Load() == 1 {
				wait, cancel := context.WithTimeout(s.ctx, 200*time.Millisecond) // the letter is locked
				defer cancel()
				_, others = other.RunOnce(wait, 100)
			}
			return nil
		})
		require.NoError(s, d.Replay(s.ctx, m))
		require.ErrorIs(s, others, context.DeadlineExceeded)
		require.NoError(s, s.requeuePass(other))
		require.NoError(s, s.requeuePass(d))
		require.EqualValues(s, 1, p.runs.Load())
		s.wantState("h/a", "applied")
		require.Equal(s, persistence.DeadLetterReplayed, s.letter(m).State)
	}},
	{"a take-over in the middle of a replay takes effect once", func(s *suite) {
		s.needsConcurrency()
		_, p, letters := s.deadLetters(record("a"))
		m := letters[0].Marker()
		require.NoError(s, s.operator().Requeue(s.ctx, m))
		entered, goOn := make(chan struct{}), make(chan struct{})
		p.breakWith(func() error {
			if p.runs.Load() == 1 {
				close(entered)
				<-goOn
			}
			return nil
		})
		zombie := events.NewDispatcher(s.Outbox, &deafCursors{OutboxCursorStore: s.Cursors}, s.Transactor, s.Idempotency, events.WithLease(100*time.Millisecond))
		s.subscribe(zombie, "h", p.handle)
		result := make(chan error, 1)
		go func() {
			_, err := zombie.RunOnce(s.ctx, 100)
			result <- err
		}()
		<-entered
		heir := s.dispatcher()
		s.subscribe(heir, "h", p.handle)
		s.untilFree(heir)
		require.EqualValues(s, 1, p.runs.Load(), "it is not requeued meanwhile")
		replayed := make(chan error, 1)
		go func() { replayed <- heir.Replay(s.ctx, m) }()
		close(goOn)
		<-result
		<-replayed
		require.NoError(s, s.requeuePass(heir))
		require.Equal(s, persistence.DeadLetterReplayed, s.letter(m).State)
		s.wantState("h/a", "applied")
	}},
	{"a letter whose event and marker retention has dropped is replayed", func(s *suite) {
		s.history()
		require.NoError(s, s.Cursors.Create(s.ctx, events.DefaultName, beginning))
		var applied []string
		broken := true
		d := s.dispatcher()
		s.subscribe(d, "h", func(_ context.Context, evt events.Event) error {
			if broken {
				return events.Permanent(errPoison)
			}
			applied = append(applied, evt.ID)
			return nil
		})
		s.settled()
		_, err := d.RunOnce(s.ctx, 100)
		require.ErrorIs(s, err, events.ErrDeadLettered)
		broken = false
		_, err = s.drop(monthsAgo(21), persistence.RetentionOptions{})
		require.NoError(s, err)
		require.Equal(s, []string{"21", "20"}, s.left())
		letters := s.letters(persistence.DeadLetterQuery{})
		require.Len(s, letters, 10)
		require.Equal(s, "24-0", letters[0].Record.ID)
		require.NoError(s, d.Replay(s.ctx, letters[0].Marker()))
		require.NoError(s, s.operator().Requeue(s.ctx, letters[1].Marker()))
		require.NoError(s, s.requeuePass(d))
		require.Equal(s, []string{"24-0", "24-1"}, applied)
	}},
	{"an operator requeues, discards and purges, each from the right state", func(s *suite) {
		d, p, letters := s.deadLetters(numbered("e", 3)...)
		o := s.operator()
		kept, replayed, discarded := letters[0].Marker(), letters[1].Marker(), letters[2].Marker()
		require.ErrorIs(s, o.Requeue(s.ctx, letter("nobody", "h").Marker()), persistence.ErrNotFound)
		require.ErrorIs(s, o.Discard(s.ctx, letter("nobody", "h").Marker()), persistence.ErrNotFound)
		require.NoError(s, o.Requeue(s.ctx, replayed))
		require.ErrorIs(s, o.Requeue(s.ctx, replayed), events.ErrLetterState)
		require.NoError(s, s.requeuePass(d))
		require.ErrorContains(s, o.Discard(s.ctx, replayed), "it is replayed")
		require.NoError(s, o.Requeue(s.ctx, discarded))
		require.NoError(s, o.Discard(s.ctx, discarded))
		require.ErrorContains(s, o.Requeue(s.ctx, discarded), "it is discarded")
		require.ErrorIs(s, d.Replay(s.ctx, discarded), events.ErrLetterState)
		require.NoError(s, s.requeuePass(d))
		require.EqualValues(s, 1, p.runs.Load())
		// With the transaction of the context.
		require.ErrorIs(s, s.Transactor.Atomically(s.ctx, func(ctx context.Context) error {
			require.NoError(s, o.Discard(ctx, kept))
			return errRollback
		}), errRollback)
		mark, err := s.Outbox.SafeMark(s.ctx)
		require.NoError(s, err)
		n, err := o.Purge(s.ctx, mark.Now.Add(time.Hour))
		require.NoError(s, err)
		require.Equal(s, 2, n)
		left, err := o.List(s.ctx, persistence.DeadLetterQuery{Limit: 10})
		require.NoError(s, err)
		require.Len(s, left, 1)
		require.Equal(s, kept, left[0].Marker())
		require.Equal(s, persistence.DeadLetterDead, left[0].State)
	}},
}

// movingCursors tells when a letter is about to be moved.
type movingCursors struct {
	persistence.OutboxCursorStore
	moves func()
}

func (c movingCursors) MoveDeadLetter(ctx context.Context, move persistence.DeadLetterMove) error {
	if move.To == persistence.DeadLetterReplayed {
		c.moves()
	}
	return c.OutboxCursorStore.MoveDeadLetter(ctx, move)
}
