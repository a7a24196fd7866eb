package matrix

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"
	"gorm.io/driver/mysql"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/gormtx"
	"github.com/onward-go/outbox/persistence"
)

// An outbox whose partitions ended half a year ago has gone on in the
// open-ended one. While retention closes that, each publish succeeds.
func TestRetentionClosesTheOpenEndedPartition(t *testing.T) {
	t.Parallel()
	onPartitions(t, func(t *testing.T, _ Server, db *gorm.DB) {
		a := newAged(t, db, "", startOfMonth(-6))
		a.insert("old", startOfMonth(-5))
		published := []string{"old"}
		publish := func() {
			id := events.NewID()
			require.NoError(t, a.publish(t.Context(), id))
			published = append(published, id)
		}
		publish()
		var report persistence.RetentionReport
		done := make(chan error, 1)
		go func() {
			var err error
			report, err = a.retain(t.Context(), 3650*day)
			done <- err
		}()
		for running := true; running; {
			publish()
			select {
			case err := <-done:
				require.NoError(t, err)
				running = false
			default:
			}
		}
		publish()
		require.Equal(t, published, a.rows())

		var made []persistence.Partition
		for _, p := range report.Created {
			if p.Table == "outbox" {
				made = append(made, p)
			}
		}
		require.Len(t, made, 4)
		require.Equal(t, []time.Time{startOfMonth(-6), startOfMonth(1)}, []time.Time{made[0].From, made[0].To})
		require.Equal(t, startOfMonth(4), made[3].To)
		again, err := a.retain(t.Context(), 3650*day)
		require.NoError(t, err)
		require.Empty(t, again.Created)
		a.insert("of a later month", startOfMonth(2))
		a.insert("of next year", startOfMonth(12))
		require.Len(t, a.rows(), len(published)+2)
	})
}

// An analyst's open transaction has read the outbox. Nobody has to wait behind
// retention meanwhile: a publisher that gives up after an instant never does.
func TestRetentionLetsNobodyWaitBehindALongQuery(t *testing.T) {
	onPartitions(t, func(t *testing.T, server Server, db *gorm.DB) {
		a := newAged(t, db, "", startOfMonth(-6), startOfMonth(-5))
		analyst := db.Begin()
		var n int64
		require.NoError(t, analyst.Raw("SELECT count(*) FROM outbox").Scan(&n).Error)

		// A publisher waits for a second, which is less than retention does. MariaDB
		// does not tell who holds a table, so there the lock timeout alone
		// bounds what a publisher waits.
		limit := 3 * time.Second
		impatient := map[string]string{"postgres": "SET LOCAL lock_timeout = '1s'", "mysql": "SET SESSION lock_wait_timeout = 1"}[db.Name()]
		if server.Name == "mariadb" {
			limit, impatient = 400*time.Millisecond, "SET SESSION lock_wait_timeout = 5"
		}
		ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
		defer cancel()
		done := make(chan error, 1)
		go func() {
			_, err := a.retain(ctx, 30*day, gormtx.WithLockTimeout(limit))
			done <- err
		}()
		var err error
		for running := true; running; {
			require.NoError(t, a.Atomically(t.Context(), func(ctx context.Context) error {
				if err := gormtx.Tx(ctx).Exec(impatient).Error; err != nil {
					return err
				}
				return a.Append(ctx, persistence.Record{ID: events.NewID(), AggregateType: "a", AggregateID: "1", EventType: "t"})
			}))
			select {
			case err = <-done:
				running = false
			default:
			}
		}
		require.Error(t, err)
		require.NoError(t, analyst.Rollback().Error)
		_, err = a.retain(t.Context(), 30*day)
		require.NoError(t, err)
		require.Len(t, a.partitions("outbox"), 5, "what ended, or was half dropped, is gone")
	})
}

func TestRetentionGivesUpOnATableThatStaysLocked(t *testing.T) {
	t.Parallel()
	onPartitions(t, func(t *testing.T, _ Server, db *gorm.DB) {
		a := newAged(t, db, "", startOfMonth(-6))
		open := db.Begin()
		var n int64
		require.NoError(t, open.Raw("SELECT count(*) FROM outbox").Scan(&n).Error)
		_, err := a.retain(t.Context(), 30*day, gormtx.WithLockTimeout(50*time.Millisecond))
		require.ErrorIs(t, err, persistence.ErrLockTimeout)
		require.NoError(t, open.Rollback().Error)
	})
}

// A partition that somebody has detached to keep it is theirs.
func TestPostgresRetentionLeavesArchivesAlone(t *testing.T) {
	db := Open(t, postgres.Open(PostgresDSN(t)), &gorm.Config{Logger: logger.Discard})
	a := newAged(t, db, "", startOfMonth(-24), startOfMonth(-23))
	archive := a.partitions("outbox")[1]
	a.insert("archived", startOfMonth(-24))
	a.exec("ALTER TABLE outbox DETACH PARTITION %s", archive)
	_, err := a.retain(t.Context(), 30*day)
	require.NoError(t, err)
	require.NoError(t, db.Exec("SELECT id FROM "+archive).Error)
}

// The open-ended partition is so large that PostgreSQL cannot look at its rows
// within the lock timeout: here it sleeps instead. So it looks beforehand, and
// publishers go on meanwhile.
func TestPostgresRetentionClosesALargePartition(t *testing.T) {
	db := Open(t, postgres.Open(PostgresDSN(t)), &gorm.Config{Logger: logger.Discard})
	a := newAged(t, db, "", startOfMonth(-6))
	a.insert("old", startOfMonth(-5))
	var meanwhile sync.Once // a statement that is slow by itself makes it begin again
	large := &crash{after: -1, rewrite: func(query string) string {
		switch {
		case strings.Contains(query, "VALIDATE CONSTRAINT"):
			meanwhile.Do(func() {
				require.NoError(t, a.publish(t.Context(), "meanwhile"))
				a.insert("in a week", time.Now().Add(7*day))
			})
		case strings.Contains(query, "ATTACH PARTITION"):
			// What a valid constraint says it does not look at.
			var bounds int64
			require.NoError(t, db.Raw("SELECT count(*) FROM pg_constraint WHERE conname = 'outbox_closed' AND convalidated").Scan(&bounds).Error)
			if bounds == 0 {
				return "SELECT pg_sleep(60)"
			}
		}
		return query
	}}
	_, err := crashingStore(a, large).EnsurePartitions(t.Context(), 3, persistence.RetentionOptions{LockTimeout: 300 * time.Millisecond})
	require.NoError(t, err)
	a.insert("next year", startOfMonth(12))
	require.Equal(t, []string{"old", "meanwhile", "in a week", "next year"}, a.rows())
	var bounds int64
	require.NoError(t, db.Raw("SELECT count(*) FROM pg_constraint WHERE conname = 'outbox_closed'").Scan(&bounds).Error)
	require.Zero(t, bounds)
}

// To copy what the open-ended partition holds takes longer than others should
// wait for a lock. It works then, rather than wait, and is not interrupted.
func TestMySQLRetentionClosesALargePartition(t *testing.T) {
	t.Parallel()
	onMySQL(t, func(t *testing.T, dsn string) {
		db := Open(t, mysql.Open(dsn), &gorm.Config{Logger: logger.Discard})
		a := newAged(t, db, "", startOfMonth(-6))
		a.insert("x", startOfMonth(-5))
		for round := range 17 {
			a.exec("INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, payload, created_time) "+
				"SELECT CONCAT(id, '%c'), aggregate_type, aggregate_id, event_type, payload, created_time FROM outbox", 'a'+round)
		}
		report, err := a.retain(t.Context(), 3650*day, gormtx.WithLockTimeout(10*time.Millisecond))
		require.NoError(t, err)
		require.Len(t, report.Created, 8)
		var n int64
		require.NoError(t, db.Raw("SELECT count(*) FROM outbox").Scan(&n).Error)
		require.EqualValues(t, 1<<17, n)
	})
}

// A user who may do what he likes in his database, and see nothing else, has no
// way to know who holds a table. So retention waits, and interrupts itself.
func TestMySQLRetentionInterruptsItsWait(t *testing.T) {
	t.Parallel()
	onMySQL(t, func(t *testing.T, dsn string) {
		root := Open(t, mysql.Open(dsn), &gorm.Config{Logger: logger.Discard})
		config, err := driver.ParseDSN(dsn)
		require.NoError(t, err)
		config.User, config.Passwd = "u_"+config.DBName[max(0, len(config.DBName)-20):], "plain"
		require.NoError(t, root.Exec(fmt.Sprintf("CREATE USER '%s'@'%%' IDENTIFIED BY '%s'", config.User, config.Passwd)).Error)
		require.NoError(t, root.Exec(fmt.Sprintf("GRANT ALL ON %s.* TO '%s'@'%%'", config.DBName, config.User)).Error)
		t.Cleanup(func() { require.NoError(t, root.Exec(fmt.Sprintf("DROP USER '%s'@'%%'", config.User)).Error) })

		a := newAged(t, Open(t, mysql.Open(config.FormatDSN()), &gorm.Config{Logger: logger.Discard}), "", startOfMonth(-6))
		analyst := root.Begin()
		var n int64
		require.NoError(t, analyst.Raw("SELECT count(*) FROM outbox_idempotency").Scan(&n).Error)
		// What others run shows in the list of sessions, of which some views cannot
		// tell every character.
		busy, stop := context.WithCancel(t.Context())
		stopped := make(chan error)
		go func() { stopped <- a.db.WithContext(busy).Exec("SELECT '\U0001F600', SLEEP(60)").Error }()
		c := &crash{after: -1}
		_, err = crashingStore(a, c).EnsurePartitions(t.Context(), 3, persistence.RetentionOptions{LockTimeout: 300 * time.Millisecond})
		require.ErrorIs(t, err, persistence.ErrLockTimeout)
		require.NotZero(t, c.kills)
		stop()
		require.ErrorIs(t, <-stopped, context.Canceled)
		require.NoError(t, analyst.Rollback().Error)
		_, err = a.retain(t.Context(), 3650*day)
		require.NoError(t, err)
	})
}

// The time that a drop takes is bench's; that it does not depend on the rows
// follows from its statements.
func TestRetentionRunsTheSameStatementsWhateverTheRows(t *testing.T) {
	t.Parallel()
	onPartitions(t, func(t *testing.T, _ Server, db *gorm.DB) {
		statements := func(prefix string, rows int) []string {
			var ends []time.Time
			for month := -102; month < -2; month++ {
				ends = append(ends, startOfMonth(month))
			}
			a := newAged(t, db, prefix, ends...)
			for i := range rows {
				a.insert(fmt.Sprint(i), ends[0].Add(time.Duration(i)))
			}
			c := &crash{after: -1}
			report, err := crashingStore(a, c).DropPartitionsBefore(t.Context(), ends[1], persistence.RetentionOptions{NoConsumers: true})
			require.NoError(t, err)
			require.Len(t, report.Dropped, 4)
			require.Empty(t, a.rows())
			return c.statements
		}
		require.Equal(t, statements("a_", 1), statements("a_", 1000))
	})
}
