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

// A dispatcher loses connections before a marker is written, in a handler and at
// both ends of a commit, and still every event takes effect once.
func TestADispatcherOutlivesItsConnections(t *testing.T) {
	for _, s := range Servers {
		if s.Kind == nil {
			continue
		}
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			server := servers.Get(t, s.Kind)
			n := newNetwork(t, server.Addr)
			dsn := strings.Replace(servers.CreateDatabase(t, server), server.Addr, n.addr, 1)
			var next atomic.Int32 // the cut in the next delivery that comes to it
			reached := func(c cut) bool { return next.CompareAndSwap(int32(c), int32(never)) }
			db, _ := openTapped(t, s, dsn, func() func(string) string {
				delivers := false // a delivery, not a save
				return func(text string) string {
					switch {
					case text == "BEGIN":
						delivers = false
					case isMarker(text):
						delivers = true
						if reached(beforeTheMarker) {
							n.drop()
						}
					case text == "COMMIT" && delivers && reached(beforeCommit):
						n.cutAt(beforeCommit)
					case text == "COMMIT" && delivers && reached(beforeTheReply):
						n.cutAt(beforeTheReply)
					}
					return text
				}
			})
			f := newFaulty(t, db)
			f.publish(t, 6)
			faults := map[string]cut{"event-0": beforeTheMarker, "event-2": beforeCommit, "event-3": beforeTheReply}
			var kill error
			killed := false
			f.poll(t, 6, func(ctx context.Context, evt events.Event) error {
				if c, ok := faults[evt.ID]; ok {
					delete(faults, evt.ID)
					next.Store(int32(c))
				}
				if evt.ID == "event-1" && !killed {
					killed = true
					kill = f.kill(ctx)
				}
				return nil
			})
			require.NoError(t, kill)
			require.True(t, killed)
			require.Empty(t, faults)
			require.EqualValues(t, never, next.Load())
			require.EqualValues(t, never, n.next.Load())
		})
	}
}

// A handler is a deadlock's victim, and does not get a lock in time.
func TestAHandlerThatLosesALockIsTriedAgain(t *testing.T) {
	const pause = 200 * time.Millisecond
	onServers(t, func(t *testing.T, f faulty, _ *network) {
		for _, statement := range []string{
			"CREATE TABLE locks (id INT PRIMARY KEY, v INT NOT NULL)",
			"INSERT INTO locks VALUES (1, 0), (2, 0)",
			"CREATE TABLE weights (id INT PRIMARY KEY)",
		} {
			require.NoError(t, f.db.Exec(statement).Error)
		}
		f.publish(t, 4)
		type try struct{ began, failed time.Time }
		tries := map[string][]*try{}
		f.poll(t, 4, func(ctx context.Context, evt events.Event) (err error) {
			this := &try{began: time.Now()}
			tries[evt.ID] = append(tries[evt.ID], this)
			defer func() { this.failed = time.Now() }()
			switch first := len(tries[evt.ID]) == 1; {
			case first && evt.ID == "event-1":
				return f.deadlock(ctx)
			case first && evt.ID == "event-2":
				return f.lockTimeout(ctx)
			}
			return nil
		}, events.WithBackoff(pause, time.Minute))
		for _, id := range []string{"event-1", "event-2"} {
			require.Len(t, tries[id], 2, id)
			require.GreaterOrEqual(t, tries[id][1].began.Sub(tries[id][0].failed), pause/2, id)
		}
	})
}

// deadlock returns the error of the transaction that a deadlock has taken back,
// that of ctx.
func (f faulty) deadlock(ctx context.Context) error {
	mine, other := gormtx.Tx(ctx), f.db.Begin()
	exec := func(tx *gorm.DB, query string) error { return tx.Exec(query).Error }
	// PostgreSQL takes back whoever is the first to look for a deadlock, MySQL
	// whoever has written less.
	heavy, light := "SET LOCAL deadlock_timeout = '1min'", "SET LOCAL deadlock_timeout = '10ms'"
	if f.db.Name() == "mysql" {
		heavy = "INSERT INTO weights WITH RECURSIVE c (id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM c WHERE id < 900) SELECT id FROM c"
		light = "DO 0"
	}
	var pid int64
	if f.db.Name() == "postgres" {
		if err := other.Raw("SELECT pg_backend_pid()").Scan(&pid).Error; err != nil {
			return err
		}
	}
	for _, err := range []error{
		exec(other, heavy), exec(other, "UPDATE locks SET v = v + 1 WHERE id = 2"),
		exec(mine, light), exec(mine, "UPDATE locks SET v = v + 1 WHERE id = 1"),
	} {
		if err != nil {
			return events.Permanent(err)
		}
	}
	go func() {
		_ = exec(other, "UPDATE locks SET v = v + 1 WHERE id = 1")
		other.Rollback()
	}()
	for waits := pid == 0; !waits; {
		if err := f.db.Raw("SELECT EXISTS (SELECT 1 FROM pg_locks WHERE pid = ? AND NOT granted)", pid).Scan(&waits).Error; err != nil {
			return events.Permanent(err)
		}
	}
	if err := exec(mine, "UPDATE locks SET v = v + 1 WHERE id = 2"); err != nil {
		return err
	}
	return events.Permanent(fmt.Errorf("there was no deadlock"))
}

// lockTimeout returns the error of a statement of ctx's transaction that waits
// for a lock in vain.
func (f faulty) lockTimeout(ctx context.Context) error {
	mine, other := gormtx.Tx(ctx), f.db.Begin()
	defer other.Rollback()
	limit := "SET LOCAL lock_timeout = '20ms'"
	if f.db.Name() == "mysql" {
		limit = "SET innodb_lock_wait_timeout = 1"
	}
	for _, err := range []error{other.Exec("UPDATE locks SET v = v + 1 WHERE id = 2").Error, mine.Exec(limit).Error} {
		if err != nil {
			return events.Permanent(err)
		}
	}
	if err := mine.Exec("UPDATE locks SET v = v + 1 WHERE id = 2").Error; err != nil {
		return err
	}
	return events.Permanent(fmt.Errorf("the lock was free"))
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
// once, in order, that something did go wrong, and that this spent no attempt:
// there is but one.
func (f faulty) poll(t *testing.T, n int, fault func(context.Context, events.Event) error, opts ...events.Option) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	d := events.NewDispatcher(f.outbox, f.outbox, f.outbox, f.outbox, append(opts, events.WithMaxAttempts(1))...)
	var disorder atomic.Int32
	require.NoError(t, d.Subscribe("t", "h", func(ctx context.Context, evt events.Event) error {
		var before int
		if err := gormtx.Tx(ctx).Raw("SELECT COUNT(*) FROM changes").Scan(&before).Error; err != nil {
			return err
		}
		if evt.ID != "event-"+strconv.Itoa(before) {
			disorder.Add(1)
		}
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
	require.NoError(t, d.Poll(ctx, 10*time.Millisecond, 100, func(err error) {
		require.NotErrorIs(t, err, events.ErrDeadLettered)
		problems++
	}))
	require.NotErrorIs(t, ctx.Err(), context.DeadlineExceeded, "the dispatcher did not get through")
	require.NotZero(t, problems)
	require.Zero(t, disorder.Load())
	var found, want []string
	require.NoError(t, f.db.Raw("SELECT id FROM changes ORDER BY id").Scan(&found).Error)
	for i := range n {
		want = append(want, "event-"+strconv.Itoa(i))
	}
	require.Equal(t, want, found)
}
