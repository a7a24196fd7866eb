package matrix

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/gormtx"
	"github.com/onward-go/outbox/persistence"
	"github.com/onward-go/outbox/testdata/servers"
)

// losingCommits are the ways in which commits of PostgreSQL come not to wait for the disk.
var losingCommits = map[string]struct {
	alter string // what is altered
	dsn   string // what is added
	opts  []gormtx.Option
	wrap  bool // the stores are wrapped, each by its contract alone
}{
	"by the option":                       {opts: []gormtx.Option{gormtx.WithAsynchronousCommit()}},
	"by the option, of stores in wraps":   {opts: []gormtx.Option{gormtx.WithAsynchronousCommit()}, wrap: true},
	"by the server's settings":            {alter: "SYSTEM"},
	"by the server's settings, and wraps": {alter: "SYSTEM", wrap: true},
	"by the role":                         {alter: "ROLE CURRENT_USER"},
	"by the DSN":                          {dsn: "&synchronous_commit=off"},
}

// A server that crashes loses what has committed a moment before, of which a
// dispatcher that outlives the crash has seen the commit.
func TestADispatcherOutlivesAServerThatLosesItsCommits(t *testing.T) {
	t.Parallel()
	for name, way := range losingCommits {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := servers.Private(t, servers.Postgres)
			dsn := servers.CreateDatabase(t, server)
			if way.alter != "" {
				admin := openSQL(t, "pgx", dsn)
				runSQL(t, admin, "ALTER %s SET synchronous_commit = off", way.alter)
				runSQL(t, admin, "SELECT pg_reload_conf()")
			}
			db := Open(t, postgres.Open(dsn+way.dsn), &gorm.Config{Logger: logger.Discard})
			outbox := gormtx.New(db, way.opts...)
			require.NoError(t, outbox.Migrate(t.Context()))
			if way.opts == nil {
				require.Eventually(t, func() bool { // a reload takes its time
					var set string
					return db.Raw("SHOW synchronous_commit").Scan(&set).Error == nil && set == "off"
				}, time.Minute, 10*time.Millisecond)
			}
			outliveCrashes(t, server, db, outbox, way.wrap)
		})
	}
}

// outliveCrashes crashes a server again and again under a dispatcher.
func outliveCrashes(t *testing.T, server *servers.Server, db *gorm.DB, outbox *gormtx.Outbox, wrap bool) {
	t.Helper()
	const aggregates, each, rounds = 50, 300, 4
	require.NoError(t, db.Exec(`CREATE TABLE effects (number bigserial, id text COLLATE "C", aggregate text)`).Error)
	d := events.NewDispatcher(outbox, outbox, outbox, outbox, events.WithLease(time.Minute))
	if wrap {
		d = events.NewDispatcher(struct{ persistence.OutboxStore }{outbox}, struct{ persistence.OutboxCursorStore }{outbox},
			struct{ persistence.Transactor }{outbox}, struct{ persistence.IdempotencyStore }{outbox}, events.WithLease(time.Minute))
	}
	var handled atomic.Int64
	reached := make(chan struct{}, 1)
	var target atomic.Int64
	require.NoError(t, d.Subscribe("t", "effect", func(ctx context.Context, evt events.Event) error {
		if handled.Add(1) == target.Load() {
			reached <- struct{}{}
		}
		return gormtx.Tx(ctx).Exec("INSERT INTO effects (id, aggregate) VALUES (?, ?)", evt.ID, evt.AggregateID).Error
	}))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- d.Poll(ctx, 50*time.Millisecond, 1000, nil) }()
	for round := range rounds {
		handled.Store(0)
		target.Store(each / 3)
		require.NoError(t, outbox.Atomically(t.Context(), func(ctx context.Context) error {
			evts := make([]events.Event, each)
			for i := range evts {
				evts[i] = events.Event{Type: "t", AggregateType: "a", AggregateID: fmt.Sprint(i % aggregates)}
			}
			// What a crash may take back is what handlers do, not what they are for.
			require.NoError(t, gormtx.Tx(ctx).Exec("SET LOCAL synchronous_commit = on").Error)
			return events.NewPublisher(outbox).Publish(ctx, evts...)
		}))
		<-reached
		require.NoError(t, server.Kill(t.Context()))
		require.NoError(t, server.Restart(t.Context()))
		require.Eventually(t, func() bool {
			var n int
			return db.Raw("SELECT count(*) FROM effects").Scan(&n).Error == nil && n == each*(round+1)
		}, time.Minute, 10*time.Millisecond)
	}
	cancel()
	<-done // a lease may have been lost with the server
	var ids, disorder int
	require.NoError(t, db.Raw("SELECT count(DISTINCT id) FROM effects").Scan(&ids).Error)
	require.Equal(t, each*rounds, ids)
	require.NoError(t, db.Raw("SELECT count(*) FROM effects AS a JOIN effects AS b USING (aggregate) WHERE a.number < b.number AND a.id > b.id").Scan(&disorder).Error)
	require.Zero(t, disorder)
}
