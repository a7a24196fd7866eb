package matrix

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/onward-go/outbox/gormtx"
	"github.com/onward-go/outbox/persistence"
	"github.com/onward-go/outbox/testdata/servers"
)

// What servers and drivers really say, also where GORM translates errors.
func TestTransientFaults(t *testing.T) {
	onServers(t, func(t *testing.T, f faulty, n *network) {
		f.db.TranslateError = true
		require.NoError(t, f.db.Exec("CREATE TABLE locks (id INT PRIMARY KEY, v INT NOT NULL)").Error)
		require.NoError(t, f.db.Exec("INSERT INTO locks VALUES (1, 0), (2, 0)").Error)
		atomically := func(ctx context.Context, fn func(ctx context.Context) error) error {
			return f.outbox.Atomically(ctx, fn)
		}
		exec := func(ctx context.Context, query string, args ...any) error {
			return gormtx.Tx(ctx).Exec(query, args...).Error
		}
		transient := func(what string, err error) {
			t.Helper()
			require.Error(t, err, what)
			require.True(t, f.outbox.IsTransient(err), "%s: %v", what, err)
			require.ErrorIs(t, err, persistence.ErrTransient, what)
		}

		transient("a session that was ended", atomically(t.Context(), func(ctx context.Context) error {
			require.NoError(t, f.kill(ctx))
			return f.change(ctx, "never")
		}))
		transient("a session that was ended, which the commit notices", atomically(t.Context(), f.kill))
		transient("a session that was ended, and the error swallowed", atomically(t.Context(), func(ctx context.Context) error {
			require.NoError(t, f.kill(ctx))
			_ = f.change(ctx, "never")
			return f.change(ctx, "never")
		}))
		for what, when := range map[string]cut{"a lost commit": beforeCommit, "a lost reply": beforeTheReply} {
			n.cutAt(when)
			transient(what, atomically(t.Context(), func(ctx context.Context) error { return f.change(ctx, strings.ReplaceAll(what, " ", "-")) }))
		}

		var meet sync.WaitGroup
		meet.Add(2)
		results := make(chan error)
		for first, second := range map[int]int{1: 2, 2: 1} {
			go func() {
				results <- atomically(t.Context(), func(ctx context.Context) error {
					err := exec(ctx, "UPDATE locks SET v = v + 1 WHERE id = ?", first)
					meet.Done()
					meet.Wait()
					if err == nil {
						err = exec(ctx, "UPDATE locks SET v = v + 1 WHERE id = ?", second)
					}
					return err
				})
			}()
		}
		one, other := <-results, <-results
		require.True(t, (one == nil) != (other == nil), "%v, %v", one, other)
		if one == nil {
			one = other
		}
		transient("a deadlock", one)

		impatience := "SET LOCAL lock_timeout = '20ms'"
		if f.db.Name() == "mysql" {
			impatience = "SET innodb_lock_wait_timeout = 1"
		}
		require.NoError(t, atomically(t.Context(), func(ctx context.Context) error {
			require.NoError(t, exec(ctx, "UPDATE locks SET v = v + 1 WHERE id = 1"))
			transient("a lock timeout", atomically(t.Context(), func(ctx context.Context) error {
				require.NoError(t, exec(ctx, impatience))
				return exec(ctx, "UPDATE locks SET v = v + 1 WHERE id = 1")
			}))
			return nil
		}))

		for what, query := range map[string]string{
			"a duplicate key":     "INSERT INTO locks VALUES (1, 0)",
			"a value that is bad": "INSERT INTO locks VALUES (3, NULL)",
			"nonsense":            "nonsense",
		} {
			err := atomically(t.Context(), func(ctx context.Context) error {
				err := exec(ctx, query)
				require.Error(t, err)
				_ = exec(ctx, "SELECT 1") // fails where the transaction has failed
				return err
			})
			require.False(t, f.outbox.IsTransient(err), "%s: %v", what, err)
			require.NotErrorIs(t, err, persistence.ErrTransient, what)
		}
		ctx, cancel := context.WithCancel(t.Context())
		err := atomically(ctx, func(ctx context.Context) error {
			cancel()
			return exec(ctx, "SELECT 1")
		})
		require.Error(t, err)
		require.False(t, f.outbox.IsTransient(err), err)
	})
}

// Nobody listens any more.
func TestAServerThatDoesNotAnswerIsATransientFault(t *testing.T) {
	for _, s := range Servers {
		if s.Kind == nil || s.Again {
			continue
		}
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			server := servers.Private(t, s.Kind)
			db := Open(t, s.Open(servers.CreateDatabase(t, server)), &gorm.Config{Logger: logger.Discard})
			f := newFaulty(t, db)
			require.NoError(t, server.Kill(t.Context()))
			err := f.outbox.Atomically(t.Context(), func(ctx context.Context) error { return f.change(ctx, "never") })
			require.Error(t, err)
			require.True(t, f.outbox.IsTransient(err), err)
			require.ErrorIs(t, err, persistence.ErrTransient)
		})
	}
}
