package outboxtest

import (
	"context"
	"errors"
	"runtime"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/persistence"
)

var transactionRules = []rule{
	{"Atomically commits the change and the event together", func(s *suite) {
		require.NoError(s, s.Transactor.Atomically(s.ctx, func(ctx context.Context) error {
			require.NoError(s, s.Put(ctx, "user", "suspended"))
			return s.Outbox.Append(ctx, record("a"))
		}))
		s.wantState("user", "suspended")
		s.wantIDs("a")
	}},
	{"an error rolls the change and the event back", func(s *suite) {
		err := s.Transactor.Atomically(s.ctx, func(ctx context.Context) error {
			require.NoError(s, s.Put(ctx, "user", "suspended"))
			require.NoError(s, s.Outbox.Append(ctx, record("a")))
			return errRollback
		})
		require.ErrorIs(s, err, errRollback)
		s.wantState("user", "")
		s.wantIDs()
	}},
	{"a panic rolls back and goes on", func(s *suite) {
		require.PanicsWithValue(s, "boom", func() {
			_ = s.Transactor.Atomically(s.ctx, func(ctx context.Context) error {
				require.NoError(s, s.Put(ctx, "user", "suspended"))
				require.NoError(s, s.Outbox.Append(ctx, record("a")))
				panic("boom")
			})
		})
		s.wantState("user", "")
		s.wantIDs()
	}},
	{"runtime.Goexit rolls back", func(s *suite) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = s.Transactor.Atomically(s.ctx, func(ctx context.Context) error {
				if err := errors.Join(s.Put(ctx, "user", "suspended"), s.Outbox.Append(ctx, record("a"))); err != nil {
					s.Error(err)
				}
				runtime.Goexit()
				return nil
			})
		}()
		<-done
		s.wantState("user", "")
		s.wantIDs()
	}},
	{"a commit that fails is an error and leaves nothing", func(s *suite) {
		needs(s, s.FailCommit, "FailCommit")
		err := s.Transactor.Atomically(s.ctx, func(ctx context.Context) error {
			require.NoError(s, s.Outbox.Append(ctx, record("a")))
			require.NoError(s, persistence.AfterCommit(ctx, func(context.Context) { s.Error("a hook ran after a failed commit") }))
			return s.FailCommit(ctx)
		})
		require.Error(s, err)
		s.wantIDs()
		s.commit(record("b")) // the connection is as good as new
		s.wantIDs("b")
	}},
	{"a nested Atomically that fails takes back its own writes only", func(s *suite) {
		require.NoError(s, s.Transactor.Atomically(s.ctx, func(ctx context.Context) error {
			require.NoError(s, s.Put(ctx, "outer", "1"))
			require.NoError(s, s.Outbox.Append(ctx, record("a")))
			err := s.Transactor.Atomically(ctx, func(ctx context.Context) error {
				require.NoError(s, s.Put(ctx, "inner", "1"))
				require.NoError(s, s.Put(ctx, "outer", "2"))
				require.NoError(s, s.Outbox.Append(ctx, record("b")))
				return errRollback
			})
			require.ErrorIs(s, err, errRollback)
			return s.Outbox.Append(ctx, record("c"))
		}))
		s.wantState("outer", "1")
		s.wantState("inner", "")
		s.wantIDs("a", "c")
	}},
	{"a nested Atomically that panics takes back its own writes only", func(s *suite) {
		require.NoError(s, s.Transactor.Atomically(s.ctx, func(ctx context.Context) error {
			require.Panics(s, func() {
				_ = s.Transactor.Atomically(ctx, func(ctx context.Context) error {
					require.NoError(s, s.Outbox.Append(ctx, record("a")))
					panic("boom")
				})
			})
			return s.Outbox.Append(ctx, record("b"))
		}))
		s.wantIDs("b")
	}},
	{"savepoints nest, and commit with the outermost", func(s *suite) {
		err := s.Transactor.Atomically(s.ctx, func(ctx context.Context) error {
			return s.Transactor.Atomically(ctx, func(ctx context.Context) error {
				require.NoError(s, s.Transactor.Atomically(ctx, func(ctx context.Context) error {
					return s.Outbox.Append(ctx, record("a"))
				}))
				require.ErrorIs(s, s.Transactor.Atomically(ctx, func(ctx context.Context) error {
					require.NoError(s, s.Outbox.Append(ctx, record("b")))
					return errRollback
				}), errRollback)
				return s.Outbox.Append(ctx, record("c"))
			})
		})
		require.NoError(s, err)
		s.wantIDs("a", "c")

		require.ErrorIs(s, s.Transactor.Atomically(s.ctx, func(ctx context.Context) error {
			require.NoError(s, s.Transactor.Atomically(ctx, func(ctx context.Context) error {
				return s.Outbox.Append(ctx, record("d"))
			}))
			return errRollback
		}), errRollback)
		s.wantIDs("a", "c")
	}},
	{"a transaction that the server has ended is dead", func(s *suite) {
		needs(s, s.EndTransaction, "EndTransaction")
		err := s.Transactor.Atomically(s.ctx, func(ctx context.Context) error {
			require.NoError(s, s.Put(ctx, "user", "suspended"))
			require.NoError(s, s.Outbox.Append(ctx, record("a")))
			_ = s.EndTransaction(ctx) // the caller swallows the error
			require.ErrorIs(s, s.Outbox.Append(ctx, record("b")), persistence.ErrNoTransaction)
			require.Error(s, s.Put(ctx, "user", "committed by itself"))
			require.Error(s, s.Transactor.Atomically(ctx, func(context.Context) error { return nil }))
			require.ErrorIs(s, persistence.AfterCommit(ctx, func(context.Context) { s.Error("hook of a dead transaction ran") }), persistence.ErrNoTransaction)
			return nil
		})
		require.Error(s, err, "Atomically must not report a commit that did not happen")
		s.wantState("user", "")
		s.wantIDs()
		s.commit(record("c"))
		s.wantIDs("c")
	}},
	{"a context that is cancelled before the commit commits nothing", func(s *suite) {
		ctx, cancel := context.WithCancel(s.ctx)
		require.ErrorIs(s, s.Transactor.Atomically(ctx, func(ctx context.Context) error {
			require.NoError(s, s.Put(ctx, "user", "suspended"))
			require.NoError(s, s.Outbox.Append(ctx, record("a")))
			cancel()
			return nil
		}), context.Canceled)
		require.ErrorIs(s, s.Transactor.Atomically(ctx, func(context.Context) error {
			s.Error("fn ran with a cancelled context")
			return nil
		}), context.Canceled)
		s.wantState("user", "")
		s.wantIDs()
	}},
	{"AfterCommit runs after the outermost commit, and not after a rollback", func(s *suite) {
		var ran []string
		hook := func(name string) func(context.Context) {
			return func(ctx context.Context) {
				require.ErrorIs(s, s.Outbox.Append(ctx, record("x")), persistence.ErrNoTransaction)
				s.wantState("hooked", "committed")
				ran = append(ran, name)
			}
		}
		require.NoError(s, s.Transactor.Atomically(s.ctx, func(ctx context.Context) error {
			require.NoError(s, s.Put(ctx, "hooked", "committed"))
			require.NoError(s, persistence.AfterCommit(ctx, hook("first")))
			require.ErrorIs(s, s.Transactor.Atomically(ctx, func(ctx context.Context) error {
				require.NoError(s, persistence.AfterCommit(ctx, hook("savepoint rolled back")))
				return errRollback
			}), errRollback)
			require.NoError(s, s.Transactor.Atomically(ctx, func(ctx context.Context) error {
				return persistence.AfterCommit(ctx, hook("second"))
			}))
			require.Empty(s, ran)
			return nil
		}))
		require.Equal(s, []string{"first", "second"}, ran)
		require.ErrorIs(s, s.Transactor.Atomically(s.ctx, func(ctx context.Context) error {
			require.NoError(s, persistence.AfterCommit(ctx, hook("rolled back")))
			return errRollback
		}), errRollback)
		require.Equal(s, []string{"first", "second"}, ran)
		require.ErrorIs(s, persistence.AfterCommit(s.ctx, hook("outside")), persistence.ErrNoTransaction)
	}},
	{"a CommitObserver runs hooks after the commit of its own database, whatever other transaction is open", func(s *suite) {
		observer, ok := s.Outbox.(persistence.CommitObserver)
		if !ok {
			return // a publisher tells of commits with persistence.AfterCommit then
		}
		ran := 0
		hook := func(ctx context.Context) {
			s.wantIDs("own")
			ran++
		}
		require.NoError(s, s.Transactor.Atomically(s.ctx, func(ctx context.Context) error {
			require.NoError(s, elsewhere(ctx, func(inner context.Context) error {
				require.NoError(s, s.Outbox.Append(inner, record("own")))
				return observer.AfterCommit(inner, hook)
			}))
			require.Zero(s, ran, "the other database's commit is not this one's")
			return nil
		}))
		require.Equal(s, 1, ran)
		require.ErrorIs(s, s.Transactor.Atomically(s.ctx, func(ctx context.Context) error {
			require.NoError(s, elsewhere(ctx, func(inner context.Context) error { return observer.AfterCommit(inner, hook) }))
			return errRollback
		}), errRollback)
		require.Equal(s, 1, ran)
		require.ErrorIs(s, elsewhere(s.ctx, func(ctx context.Context) error { return observer.AfterCommit(ctx, hook) }), persistence.ErrNoTransaction)
	}},
}

// elsewhere runs fn in a transaction of another database.
func elsewhere(ctx context.Context, fn func(context.Context) error) error {
	return persistence.Atomically(ctx, new(int), func(context.Context) (persistence.Tx, error) { return noDatabase{}, nil }, fn)
}

// noDatabase is a transaction that writes nothing.
type noDatabase struct{}

func (noDatabase) Commit(context.Context) error             { return nil }
func (noDatabase) Rollback(context.Context) error           { return nil }
func (noDatabase) Savepoint(context.Context, string) error  { return nil }
func (noDatabase) RollbackTo(context.Context, string) error { return nil }
func (noDatabase) Release(context.Context, string) error    { return nil }
func (noDatabase) Err() error                               { return nil }
