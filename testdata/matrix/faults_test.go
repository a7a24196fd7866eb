package matrix

import (
	"context"
	"fmt"
	"strings"
	"testing"

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

// onServers runs a test on each server that can fail, over a network that can,
// with each driver.
func onServers(t *testing.T, test func(t *testing.T, f faulty, n *network)) {
	for _, s := range Servers {
		if s.Kind == nil {
			continue // embedded: there is no connection to lose
		}
		run := func(name string, open func(t testing.TB, dsn string) gorm.Dialector) {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				server := servers.Get(t, s.Kind)
				n := newNetwork(t, server.Addr)
				dsn := strings.Replace(servers.CreateDatabase(t, server), server.Addr, n.addr, 1)
				test(t, newFaulty(t, Open(t, open(t, dsn), &gorm.Config{Logger: logger.Discard})), n)
			})
		}
		run(s.Name, func(_ testing.TB, dsn string) gorm.Dialector { return s.Open(dsn) })
		for name, driver := range s.Drivers {
			if !s.Again {
				run(s.Name+"/"+name, driver.Open)
			}
		}
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
