package matrix

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/gormtx"
	"github.com/onward-go/outbox/testdata/servers"
)

// faulty is an outbox on a server that can fail, with a table of changes.
type faulty struct {
	db     *gorm.DB
	outbox *gormtx.Outbox
}

func newFaulty(t *testing.T, db *gorm.DB) faulty {
	t.Helper()
	f := faulty{db, gormtx.New(db)}
	require.NoError(t, f.outbox.Migrate(t.Context()))
	require.NoError(t, db.Exec("CREATE TABLE changes (id VARCHAR(64) NOT NULL)").Error)
	return f
}

// change writes a change and publishes it.
func (f faulty) change(ctx context.Context, id string) error {
	if err := gormtx.Tx(ctx).Exec("INSERT INTO changes (id) VALUES (?)", id).Error; err != nil {
		return err
	}
	return events.NewPublisher(f.outbox).Publish(ctx, events.Event{ID: id, Type: "t", AggregateType: "a", AggregateID: "1"})
}

// want asserts what is there, as change and as event: one of each.
func (f faulty) want(t *testing.T, ids ...string) {
	t.Helper()
	for _, table := range []string{"changes", "outbox"} {
		found := []string{}
		require.NoError(t, f.db.Raw("SELECT id FROM "+table).Scan(&found).Error)
		require.ElementsMatch(t, ids, found, table)
	}
}

// kill ends the session of ctx's transaction from another one.
func (f faulty) kill(ctx context.Context) error {
	session, kill := "SELECT pg_backend_pid()", "SELECT pg_terminate_backend(%d)"
	if f.db.Name() == "mysql" {
		session, kill = "SELECT CONNECTION_ID()", "KILL %d" // which takes no parameter
	}
	var id int64
	if err := gormtx.Tx(ctx).Raw(session).Scan(&id).Error; err != nil {
		return err
	}
	return f.db.WithContext(ctx).Exec(fmt.Sprintf(kill, id)).Error
}

// onServers runs a test on each server that can fail, over a network that can.
func onServers(t *testing.T, test func(t *testing.T, f faulty, n *network)) {
	for _, s := range Servers {
		if s.Kind == nil {
			continue // embedded: there is no connection to lose
		}
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			server := servers.Get(t, s.Kind)
			n := newNetwork(t, server.Addr)
			dsn := strings.Replace(servers.CreateDatabase(t, server), server.Addr, n.addr, 1)
			test(t, newFaulty(t, Open(t, s.Open(dsn), &gorm.Config{Logger: logger.Discard})), n)
		})
	}
}

func TestAConnectionKilledInATransactionLeavesNothing(t *testing.T) {
	onServers(t, func(t *testing.T, f faulty, _ *network) {
		require.Error(t, f.outbox.Atomically(t.Context(), func(ctx context.Context) error {
			require.NoError(t, f.change(ctx, "before"))
			require.NoError(t, f.kill(ctx))
			require.Error(t, f.change(ctx, "after"))
			return nil // whoever swallows the error commits nothing
		}))
		f.want(t)
		require.Error(t, f.outbox.Atomically(t.Context(), func(ctx context.Context) error {
			require.NoError(t, f.change(ctx, "before"))
			return f.kill(ctx) // the commit is the first to notice
		}))
		f.want(t)
		require.NoError(t, f.outbox.Atomically(t.Context(), func(ctx context.Context) error { return f.change(ctx, "next") }))
		f.want(t, "next")
	})
}

// Whether a commit whose answer is lost has happened, nobody can know; but
// change and event share its fate.
func TestAConnectionLostDuringTheCommitLeavesBothOrNothing(t *testing.T) {
	onServers(t, func(t *testing.T, f faulty, n *network) {
		commit := func(id string) error {
			return f.outbox.Atomically(t.Context(), func(ctx context.Context) error { return f.change(ctx, id) })
		}
		require.NoError(t, commit("whole"))
		n.cutAt(beforeCommit)
		require.Error(t, commit("request-lost"))
		f.want(t, "whole")
		n.cutAt(beforeTheReply)
		require.Error(t, commit("reply-lost"))
		f.want(t, "whole", "reply-lost")
		require.NoError(t, commit("next"))
		f.want(t, "whole", "reply-lost", "next")
	})
}

// A dispatcher loses connections in a handler and at both ends of a commit, and
// still every event takes effect once.
func TestADispatcherOutlivesItsConnections(t *testing.T) {
	onServers(t, func(t *testing.T, f faulty, n *network) {
		f.publish(t, 6)
		var killed, cutBefore, cutAfter atomic.Bool
		var kill error
		f.poll(t, 6, func(ctx context.Context, evt events.Event) error {
			switch {
			case evt.ID == "event-1" && killed.CompareAndSwap(false, true):
				kill = f.kill(ctx)
			case evt.ID == "event-2" && cutBefore.CompareAndSwap(false, true):
				n.cutAt(beforeCommit)
			case evt.ID == "event-3" && cutAfter.CompareAndSwap(false, true):
				n.cutAt(beforeTheReply)
			}
			return nil
		})
		require.NoError(t, kill)
		require.True(t, killed.Load() && cutBefore.Load() && cutAfter.Load())
	})
}

// The server is killed in the middle of a handler, and starts again.
func TestADispatcherOutlivesTheServer(t *testing.T) {
	for _, s := range Servers {
		if s.Kind == nil || s.Again {
			continue
		}
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			server := servers.Private(t, s.Kind)
			db := Open(t, s.Open(servers.CreateDatabase(t, server)), &gorm.Config{Logger: logger.Discard})
			f := newFaulty(t, db)
			f.publish(t, 6)
			var crashed atomic.Bool
			f.poll(t, 6, func(ctx context.Context, evt events.Event) error {
				if evt.ID != "event-2" || !crashed.CompareAndSwap(false, true) {
					return nil
				}
				if err := server.Kill(ctx); err != nil {
					return err
				}
				return server.Restart(ctx)
			})
			require.True(t, crashed.Load())
		})
	}
}

// publish commits events, one a transaction.
func (f faulty) publish(t *testing.T, n int) {
	t.Helper()
	for i := range n {
		require.NoError(t, f.outbox.Atomically(t.Context(), func(ctx context.Context) error {
			return events.NewPublisher(f.outbox).Publish(ctx, events.Event{
				ID: "event-" + strconv.Itoa(i), Type: "t", AggregateType: "a", AggregateID: "1",
			})
		}))
	}
}

// poll delivers until all events have taken effect, and asserts that each has
// once, in order, and that something did go wrong.
func (f faulty) poll(t *testing.T, n int, fault func(context.Context, events.Event) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	d := events.NewDispatcher(f.outbox, f.outbox, f.outbox, f.outbox)
	require.NoError(t, d.Subscribe("t", "h", func(ctx context.Context, evt events.Event) error {
		if err := gormtx.Tx(ctx).Exec("INSERT INTO changes (id) VALUES (?)", evt.ID).Error; err != nil {
			return err
		}
		return fault(ctx, evt)
	}))
	require.NoError(t, d.Subscribe("t", "last", func(_ context.Context, evt events.Event) error {
		if evt.ID == "event-"+strconv.Itoa(n-1) {
			cancel()
		}
		return nil
	}))
	problems := 0
	require.NoError(t, d.Poll(ctx, 10*time.Millisecond, 100, func(error) { problems++ }))
	require.NotErrorIs(t, ctx.Err(), context.DeadlineExceeded, "the dispatcher did not get through")
	require.NotZero(t, problems)
	var found, want []string
	require.NoError(t, f.db.Raw("SELECT id FROM changes ORDER BY id").Scan(&found).Error)
	for i := range n {
		want = append(want, "event-"+strconv.Itoa(i))
	}
	require.Equal(t, want, found)
}
