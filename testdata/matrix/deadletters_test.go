package matrix

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/gormtx"
	"github.com/onward-go/outbox/internal/sqlstore"
	"github.com/onward-go/outbox/persistence"
	"github.com/onward-go/outbox/schema"
)

const (
	manyLetters = 22_500
	mostBlocks  = 20 // blocks, or calls of the storage engine, to find one of them
)

// fillDeadLetters writes many letters, of which the one in the middle is
// requeued.
func fillDeadLetters(t *testing.T, db *gorm.DB) {
	t.Helper()
	var at any = time.Date(2026, 3, 29, 1, 59, 59, 0, time.UTC).Format(time.DateTime)
	if db.Name() == "sqlite" {
		at = 1774749599000000
	}
	require.NoError(t, db.Exec(`
INSERT INTO outbox_dead_letters (created_time, event_id, handler, dispatcher, account_id, aggregate_type, aggregate_id, event_type,
  payload, attempts, last_error, state, dead_time)
WITH RECURSIVE digits (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM digits WHERE i < 149)
SELECT '2026-03-29 01:59:59', CAST(1000000 + high.i * 150 + low.i AS CHAR(7)), 'h', 'default', '', 'a', '1', 't', '', 5, 'broken',
  CASE WHEN high.i = 75 AND low.i = 75 THEN 'requeued' ELSE 'dead' END, '2026-03-29 01:59:59'
FROM digits AS high CROSS JOIN digits AS low`).Error)
	require.NoError(t, db.Exec("UPDATE outbox_dead_letters SET created_time = ?, dead_time = ?", at, at).Error)
	switch db.Name() {
	case "postgres":
		require.NoError(t, db.Exec("VACUUM ANALYZE outbox_dead_letters").Error)
	case "mysql":
		require.NoError(t, db.Exec("ANALYZE TABLE outbox_dead_letters").Error)
	}
}

// A dispatcher looks for requeued letters every few seconds, however many dead
// ones nobody has looked at.
func TestARequeuedLetterIsFoundAtOnceAmongMany(t *testing.T) {
	for _, s := range Servers {
		if s.Again {
			continue
		}
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			db := Open(t, s.Gorm(t), &gorm.Config{Logger: logger.Discard})
			pool, err := db.DB()
			require.NoError(t, err)
			pool.SetMaxOpenConns(1) // costs are counted by session
			outbox := gormtx.New(db)
			require.NoError(t, outbox.Migrate(t.Context()))
			_, err = outbox.ListDeadLetters(t.Context(), persistence.DeadLetterQuery{Limit: 1}) // looks at the server
			require.NoError(t, err)
			fillDeadLetters(t, db)
			switch db.Name() {
			case "postgres":
				for _, cache := range []string{"force_custom_plan", "force_generic_plan"} {
					plan := explain(t, db, cache,
						"(text, text, text, text, text, text, text, text, timestamptz, text, text, boolean, bigint) AS "+sqlstore.Postgres.Text("ListDeadLettersIn", schema.Naming{}),
						"'requeued', 'default', '', '', '', '', '', '', '0001-01-01', '', '', true, 100")
					require.LessOrEqual(t, plan.Hit+plan.Read, mostBlocks, cache)
				}
			case "sqlite":
				var plan []struct{ Detail string }
				require.NoError(t, db.Raw("EXPLAIN QUERY PLAN "+sqlstore.SQLite.Text("ListDeadLettersIn", schema.Naming{}),
					"requeued", "default", "", "", "", "", "", "", 0, "", "", true, 100).Scan(&plan).Error)
				require.Len(t, plan, 1, "it sorts")
				require.Contains(t, plan[0].Detail, "USING INDEX outbox_dead_letters_state (state=?")
			}
			before := handlerReads(t, db)
			ourselves := handlerReads(t, db) - before
			before = handlerReads(t, db)
			found, err := outbox.ListDeadLetters(t.Context(), persistence.DeadLetterQuery{
				State: persistence.DeadLetterRequeued, Dispatcher: events.DefaultName, WithoutPayload: true, Limit: 100,
			})
			require.NoError(t, err)
			require.Len(t, found, 1)
			require.LessOrEqual(t, handlerReads(t, db)-before-ourselves, mostBlocks)
		})
	}
}

// handlerReads returns how often the session has read from MySQL's storage
// engine.
func handlerReads(t *testing.T, db *gorm.DB) (sum int) {
	t.Helper()
	if db.Name() != "mysql" {
		return 0
	}
	var counters []struct {
		Name  string `gorm:"column:Variable_name"`
		Value int    `gorm:"column:Value"`
	}
	require.NoError(t, db.Raw("SHOW SESSION STATUS LIKE 'Handler_read%'").Scan(&counters).Error)
	require.NotEmpty(t, counters)
	for _, c := range counters {
		sum += c.Value
	}
	return sum
}

// A process that is paused in a replay keeps the letter locked.
func TestPostgresEndsAReplayThatStandsIdlePastItsDeadline(t *testing.T) {
	db, outbox := newPostgres(t)
	fillDeadLetters(t, db)
	letters, err := outbox.ListDeadLetters(t.Context(), persistence.DeadLetterQuery{Limit: 1})
	require.NoError(t, err)
	letter := letters[0].Marker()
	entered, resume := make(chan struct{}), make(chan struct{})
	paused := events.NewDispatcher(outbox, outbox, outbox, outbox, events.WithHandlerTimeout(100*time.Millisecond))
	require.NoError(t, paused.Subscribe("t", "h", func(context.Context, events.Event) error {
		close(entered)
		<-resume
		return nil
	}))
	result := make(chan error, 1)
	go func() { result <- paused.Replay(t.Context(), letter) }()
	<-entered
	require.NoError(t, events.NewDeadLetters(outbox, outbox).Requeue(t.Context(), letter)) // it waits for the lock
	close(resume)
	require.Error(t, <-result)
	found, err := outbox.GetDeadLetter(t.Context(), letter)
	require.NoError(t, err)
	require.Equal(t, persistence.DeadLetterRequeued, found.State)
}

// The connection is lost while a replay commits: the letter and the change are of
// one mind, and the next replay makes sure that both are there, once.
func TestAReplayThatLosesItsConnectionTakesEffectOnce(t *testing.T) {
	onServers(t, func(t *testing.T, f faulty, n *network) {
		f.publish(t, 2)
		broken := true
		cuts := map[string]cut{"event-0": beforeCommit, "event-1": beforeTheReply}
		d := events.NewDispatcher(f.outbox, f.outbox, f.outbox, f.outbox, events.WithMaxAttempts(1))
		require.NoError(t, d.Subscribe("t", "h", func(ctx context.Context, evt events.Event) error {
			if broken {
				return events.Permanent(context.Canceled)
			}
			err := gormtx.Tx(ctx).Exec("INSERT INTO changes (id) VALUES (?)", evt.ID).Error
			if c, ok := cuts[evt.ID]; ok && err == nil {
				delete(cuts, evt.ID)
				n.cutAt(c)
			}
			return err
		}))
		require.Eventually(t, func() bool {
			_, _ = d.RunOnce(t.Context(), 10)
			letters, err := f.outbox.ListDeadLetters(t.Context(), persistence.DeadLetterQuery{Limit: 10})
			return err == nil && len(letters) == 2
		}, time.Minute, 10*time.Millisecond)
		broken = false
		letters, err := f.outbox.ListDeadLetters(t.Context(), persistence.DeadLetterQuery{Limit: 10})
		require.NoError(t, err)
		for _, l := range letters {
			require.Error(t, d.Replay(t.Context(), l.Marker()), "the connection was cut")
			found, err := f.outbox.GetDeadLetter(t.Context(), l.Marker())
			require.NoError(t, err)
			var changes int
			require.NoError(t, f.db.Raw("SELECT COUNT(*) FROM changes WHERE id = ?", l.Record.ID).Scan(&changes).Error)
			require.Equal(t, found.State == persistence.DeadLetterReplayed, changes == 1)
			if err := d.Replay(t.Context(), l.Marker()); changes == 1 {
				require.ErrorIs(t, err, events.ErrLetterState)
			} else {
				require.NoError(t, err)
			}
			require.Equal(t, l.Attempts, found.Attempts, "it is not the event's fault")
		}
		var changes []string
		require.NoError(t, f.db.Raw("SELECT id FROM changes ORDER BY id").Scan(&changes).Error)
		require.Equal(t, "event-0 event-1", strings.Join(changes, " "))
	})
}
