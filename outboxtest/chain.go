package outboxtest

import (
	"context"
	"errors"
	"runtime"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/persistence"
)

// link is a chain, and what it has told of each of its transactions.
type link struct {
	*suite
	chain persistence.Chain
	told  map[string]error
}

// linked returns one, or skips the rule where the transactor makes none.
func (s *suite) linked() *link {
	chainer, ok := s.Transactor.(persistence.Chainer)
	if !ok {
		s.Skip("the Transactor is no persistence.Chainer")
	}
	chain := chainer.Chain(s.Transactor)
	if chain == nil {
		s.Skip("the Transactor makes no chain")
	}
	return &link{s, chain, map[string]error{}}
}

// run runs a transaction under a name, whose outcome is told then or later.
func (l *link) run(name string, fn func(ctx context.Context) error) error {
	held, err := l.chain.Atomically(l.ctx, fn, func(err error) {
		require.NotContains(l, l.told, name, "told twice")
		l.told[name] = err
	})
	if !held {
		require.NotContains(l, l.told, name)
		l.told[name] = err
	}
	return err
}

// write publishes an event and puts a value, each under the name.
func (l *link) write(ctx context.Context, name string) error {
	return errors.Join(l.Put(ctx, name, "written"), l.Outbox.Append(ctx, record(name)))
}

// firsts are the statements that a transaction may begin with.
func (l *link) firsts() map[string]func(ctx context.Context) error {
	return map[string]func(ctx context.Context) error{
		"marker": func(ctx context.Context) error {
			return l.Idempotency.RecordNew(ctx, persistence.Marker{
				Event: persistence.Cursor{CreatedTime: time.Now(), ID: events.NewID()}, Handler: "h",
			})
		},
		"row":   func(ctx context.Context) error { return l.Put(ctx, "first", "written") },
		"event": func(ctx context.Context) error { return l.Outbox.Append(ctx, record(events.NewID())) },
	}
}

var chainRules = []rule{
	{"a chain is made for the transactor itself alone", func(s *suite) {
		chainer, ok := s.Transactor.(persistence.Chainer)
		if !ok {
			s.Skip("the Transactor is no persistence.Chainer")
		}
		require.Nil(s, chainer.Chain(struct{ persistence.Transactor }{s.Transactor}))
	}},
	{"a chain commits each transaction before the next one's first statement returns, and the last with Flush", func(s *suite) {
		l := s.linked()
		for name, first := range l.firsts() {
			a, b := "a-"+name, "b-"+name
			require.NoError(s, l.run(a, func(ctx context.Context) error { return l.write(ctx, a) }))
			require.NoError(s, l.run(b, func(ctx context.Context) error {
				require.NoError(s, first(ctx))
				require.Contains(s, l.told, a)
				require.NoError(s, l.told[a])
				if !l.OneConnection {
					s.wantState(a, "written")
				}
				return l.write(ctx, b)
			}))
			l.chain.Flush()
			require.Contains(s, l.told, b)
			require.NoError(s, l.told[b])
			s.wantState(b, "written")
			l.chain.Flush() // nothing is held any more
		}
	}},
	{"in a chain, a transaction behind a commit that fails does nothing", func(s *suite) {
		needs(s, s.FailCommit, "FailCommit")
		l := s.linked()
		for name, first := range l.firsts() {
			a, b := "a-"+name, "b-"+name
			err := l.run(a, func(ctx context.Context) error {
				return errors.Join(l.write(ctx, a), s.FailCommit(ctx))
			})
			if err != nil {
				continue // it was not held
			}
			require.Error(s, l.run(b, func(ctx context.Context) error {
				require.Error(s, first(ctx))
				require.Error(s, l.told[a])
				return l.write(ctx, b)
			}))
			s.wantState(a, "")
			s.wantState(b, "")
			require.NoError(s, l.run("c-"+name, func(ctx context.Context) error { return l.write(ctx, "c-"+name) }))
			l.chain.Flush()
			s.wantState("c-"+name, "written")
		}
	}},
	{"in a chain, a marker that exists takes nothing from the transaction before", func(s *suite) {
		l := s.linked()
		s.recordMarkers(marker("known", "h"))
		for _, name := range []string{"a", "b"} {
			require.NoError(s, l.run(name, func(ctx context.Context) error { return l.write(ctx, name) }))
			require.ErrorIs(s, l.run("known", func(ctx context.Context) error {
				return l.Idempotency.RecordNew(ctx, marker("known", "h"))
			}), persistence.ErrApplied)
			require.Contains(s, l.told, name)
			require.NoError(s, l.told[name])
			delete(l.told, "known")
			s.wantState(name, "written")
		}
		require.NoError(s, l.run("c", func(ctx context.Context) error { return l.write(ctx, "c") }))
		l.chain.Flush()
		s.wantState("c", "written")
	}},
	{"in a chain, a commit that fails in Flush is told", func(s *suite) {
		needs(s, s.FailCommit, "FailCommit")
		l := s.linked()
		_ = l.run("a", func(ctx context.Context) error { return errors.Join(l.write(ctx, "a"), s.FailCommit(ctx)) })
		l.chain.Flush()
		require.Error(s, l.told["a"])
		s.wantState("a", "")
		s.commit(record("b"))
	}},
	{"in a chain, an error rolls its own transaction back alone", func(s *suite) {
		l := s.linked()
		for name, first := range l.firsts() {
			a := "a-" + name
			require.NoError(s, l.run(a, func(ctx context.Context) error { return l.write(ctx, a) }))
			require.ErrorIs(s, l.run("b", func(ctx context.Context) error {
				return errors.Join(first(ctx), l.Put(ctx, "b", "written"), errRollback)
			}), errRollback)
			require.NoError(s, l.told[a])
			delete(l.told, "b")
			s.wantState(a, "written")
			s.wantState("b", "")
		}
		require.NoError(s, l.run("last", func(ctx context.Context) error { return l.write(ctx, "last") }))
		require.ErrorIs(s, l.run("idle", func(context.Context) error { return errRollback }), errRollback)
		require.NoError(s, l.told["last"])
		s.wantState("last", "written")
	}},
	{"in a chain, a panic and runtime.Goexit roll their own transaction back alone", func(s *suite) {
		l := s.linked()
		for name, end := range map[string]func(){"panic": func() { panic("boom") }, "exit": runtime.Goexit} {
			require.NoError(s, l.run(name, func(ctx context.Context) error { return l.write(ctx, name) }))
			done := make(chan struct{})
			go func() {
				defer close(done)
				defer func() { _ = recover() }()
				_, _ = l.chain.Atomically(l.ctx, func(ctx context.Context) error {
					if err := l.Put(ctx, "ended", "written"); err != nil {
						s.Error(err)
					}
					end()
					return nil
				}, func(error) { s.Error("it was not held") })
			}()
			<-done
			require.NoError(s, l.told[name])
			s.wantState(name, "written")
			s.wantState("ended", "")
		}
		require.NoError(s, l.run("after", func(ctx context.Context) error { return l.write(ctx, "after") }))
		l.chain.Flush()
		s.wantState("after", "written")
	}},
	{"a chain commits before a transaction that does nothing, or cannot begin", func(s *suite) {
		l := s.linked()
		require.NoError(s, l.run("a", func(ctx context.Context) error { return l.write(ctx, "a") }))
		require.NoError(s, l.run("idle", func(context.Context) error { return nil }))
		l.chain.Flush()
		s.wantState("a", "written")
		require.NoError(s, l.run("b", func(ctx context.Context) error { return l.write(ctx, "b") }))
		cancelled, cancel := context.WithCancel(l.ctx)
		cancel()
		held, err := l.chain.Atomically(cancelled, func(context.Context) error { return nil }, nil)
		require.False(s, held)
		require.ErrorIs(s, err, context.Canceled)
		require.NoError(s, l.told["b"])
		s.wantState("b", "written")
	}},
	{"a chain holds no transaction with something to do after the commit, or that has ended", func(s *suite) {
		l := s.linked()
		hooked := false
		held, err := l.chain.Atomically(l.ctx, func(ctx context.Context) error {
			require.NoError(s, persistence.AfterCommit(ctx, func(context.Context) { hooked = true }))
			return l.write(ctx, "a")
		}, nil)
		require.NoError(s, err)
		require.False(s, held)
		require.True(s, hooked)
		if s.EndTransaction == nil {
			return
		}
		held, err = l.chain.Atomically(l.ctx, func(ctx context.Context) error {
			require.NoError(s, l.Put(ctx, "b", "written"))
			_ = s.EndTransaction(ctx)
			return nil
		}, nil)
		require.Error(s, err)
		require.False(s, held)
		s.wantState("b", "")
	}},
	{"in a chain, a transaction takes no statements once the next one has begun", func(s *suite) {
		l := s.linked()
		var kept context.Context
		require.NoError(s, l.run("a", func(ctx context.Context) error {
			kept = ctx
			return l.write(ctx, "a")
		}))
		require.NoError(s, l.run("b", func(ctx context.Context) error {
			require.NoError(s, l.write(ctx, "b"))
			require.ErrorIs(s, l.Outbox.Append(kept, record("kept")), persistence.ErrNoTransaction)
			require.Error(s, l.Put(kept, "kept", "written"))
			return nil
		}))
		l.chain.Flush()
		s.wantIDs("a", "b")
		s.wantState("kept", "")
	}},
}
