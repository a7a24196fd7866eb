package matrix

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"
	gormmysql "gorm.io/driver/mysql"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/gormtx"
	"github.com/onward-go/outbox/persistence"
)

// heldBy waits until somebody is seen to hold the safe mark back.
func heldBy(t *testing.T, outbox *gormtx.Outbox) persistence.OutboxStatus {
	t.Helper()
	for {
		status, err := outbox.ReadStatus(t.Context())
		require.NoError(t, err)
		if len(status.Producers) > 0 {
			return status.OutboxStatus
		}
	}
}

const ofApplication = "the producer"

func TestStatusNamesThePostgresProducer(t *testing.T) {
	db, outbox := newPostgres(t)
	other := gormtx.New(db, gormtx.WithTablePrefix("other_"))
	require.NoError(t, other.Migrate(t.Context()))
	tx := db.Begin()
	var pid int64
	require.NoError(t, tx.Raw("SELECT pg_backend_pid()").Row().Scan(&pid))
	require.NoError(t, tx.Exec("SET LOCAL application_name = '"+ofApplication+"'").Error)
	require.NoError(t, tx.Exec(insertByHand, "open").Error)
	status := heldBy(t, outbox)
	require.Len(t, status.Producers, 1)
	p := status.Producers[0]
	require.Equal(t, pid, p.PID)
	require.Equal(t, ofApplication, p.Client)
	require.Equal(t, "idle in transaction", p.State)
	require.WithinDuration(t, time.Now(), p.Began, time.Minute)
	require.Positive(t, status.MarkAge)
	elsewhere, err := other.ReadStatus(t.Context())
	require.NoError(t, err)
	require.Empty(t, elsewhere.Producers)
	require.NoError(t, tx.Exec("PREPARE TRANSACTION 'status'").Error)
	status = heldBy(t, outbox)
	require.Len(t, status.Producers, 1)
	p = status.Producers[0]
	require.Equal(t, "status", p.Prepared)
	require.Zero(t, p.PID)
	require.NoError(t, tx.Rollback().Error)
	require.NoError(t, db.Exec("ROLLBACK PREPARED 'status'").Error)
	after, err := outbox.ReadStatus(t.Context())
	require.NoError(t, err)
	require.Empty(t, after.Producers)
	require.Zero(t, after.MarkAge)
}

func TestStatusNamesTheMySQLProducer(t *testing.T) {
	onMySQL(t, func(t *testing.T, dsn string) {
		db := Open(t, gormmysql.Open(dsn), &gorm.Config{Logger: logger.Discard})
		outbox := gormtx.New(db)
		require.NoError(t, outbox.Migrate(t.Context()))
		var version string
		require.NoError(t, db.Raw("SELECT VERSION()").Row().Scan(&version))
		var open int64
		require.NoError(t, outbox.Atomically(t.Context(), func(ctx context.Context) error {
			if err := gormtx.Tx(ctx).Raw("SELECT CONNECTION_ID()").Row().Scan(&open); err != nil {
				return err
			}
			if err := events.NewPublisher(outbox).Publish(ctx, newEvents(1)...); err != nil {
				return err
			}
			status := heldBy(t, outbox)
			require.Len(t, status.Producers, 1)
			p := status.Producers[0]
			require.Equal(t, open, p.PID)
			require.Contains(t, p.Client, "root@")
			require.Equal(t, "Sleep", p.State)
			require.WithinDuration(t, status.Now, p.Began, 10*time.Second)
			require.Equal(t, t.Name() == "TestStatusNamesTheMySQLProducer/mariadb", p.Suspected)

			// Who may ask nothing but the tables learns that there is one, also
			// where it began before the process that asks.
			status = heldBy(t, gormtx.New(Open(t, gormmysql.Open(reader(t, db, dsn)), &gorm.Config{Logger: logger.Discard})))
			require.Len(t, status.Producers, 1)
			require.Zero(t, status.Producers[0].PID)
			require.Empty(t, status.Producers[0].Client)
			return nil
		}))
	})
}

// reader makes a user who may read the outbox's tables, and lock rows of the
// fence, and returns the DSN.
func reader(t *testing.T, db *gorm.DB, dsn string) string {
	t.Helper()
	config, err := mysql.ParseDSN(dsn)
	require.NoError(t, err)
	name := "reader_" + config.DBName[max(0, len(config.DBName)-20):]
	config.User, config.Passwd = name, "secret"
	require.NoError(t, db.Exec(fmt.Sprintf("CREATE USER '%s'@'%%' IDENTIFIED BY 'secret'", name)).Error)
	t.Cleanup(func() {
		require.NoError(t, db.WithContext(context.Background()).Exec("DROP USER '"+name+"'@'%'").Error)
	})
	require.NoError(t, db.Exec(fmt.Sprintf("GRANT SELECT ON %s.* TO '%s'@'%%'", config.DBName, name)).Error)
	require.NoError(t, db.Exec(fmt.Sprintf("GRANT UPDATE ON %s.outbox_fence TO '%s'@'%%'", config.DBName, name)).Error)
	return config.FormatDSN()
}

// While a producer stays open, everybody else's events are delivered, and the
// status says why the cursor waits.
func TestStatusTellsWhyTheCursorWaits(t *testing.T) {
	for _, server := range Servers {
		if server.OneWriter || server.Again {
			continue
		}
		t.Run(server.Name, func(t *testing.T) {
			t.Parallel()
			outbox := gormtx.New(Open(t, server.Gorm(t), &gorm.Config{Logger: logger.Discard}))
			require.NoError(t, outbox.Migrate(t.Context()))
			delivered := make(chan string, 10)
			d := events.NewDispatcher(outbox, outbox, outbox, outbox)
			require.NoError(t, d.Subscribe("t", "h", func(_ context.Context, evt events.Event) error {
				delivered <- evt.ID
				return nil
			}))
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- d.Poll(ctx, 20*time.Millisecond, 10, nil) }()
			require.NoError(t, outbox.Atomically(t.Context(), func(ctx context.Context) error {
				if err := events.NewPublisher(outbox).Publish(ctx, newEvents(1)...); err != nil {
					return err
				}
				publish(t, outbox, "published")
				require.Equal(t, "published", <-delivered)
				var status events.Status
				for status.Window == nil || status.Window.HeldBy != events.HeldByProducer {
					var err error
					status, err = d.Status(t.Context())
					require.NoError(t, err)
				}
				require.Equal(t, 1, status.Window.Settled)
				require.Zero(t, status.Lag)
				require.Equal(t, persistence.Count{N: 1}, status.After)
				return nil
			}))
			<-delivered
			for status, err := d.Status(t.Context()); status.After.N > 0; status, err = d.Status(t.Context()) {
				require.NoError(t, err)
			}
			cancel()
			require.NoError(t, <-done)
		})
	}
}

// A detach that was cut off lets nobody write to the partition's range, until
// retention ends it.
func TestPostgresStatusTellsOfADetachThatWasCutOff(t *testing.T) {
	db, outbox := newPostgres(t)
	name := startOfMonth(3).Format("outbox_p2006_01")
	reader := db.Begin()
	require.NoError(t, reader.Exec("SELECT FROM "+name).Error)
	pool, err := db.DB()
	require.NoError(t, err)
	conn, err := pool.Conn(t.Context())
	require.NoError(t, err)
	_, err = conn.ExecContext(t.Context(), "SET statement_timeout = '100ms'")
	require.NoError(t, err)
	_, err = conn.ExecContext(t.Context(), "ALTER TABLE outbox DETACH PARTITION "+name+" CONCURRENTLY")
	require.ErrorContains(t, err, "timeout")
	_, err = conn.ExecContext(t.Context(), "RESET statement_timeout")
	require.NoError(t, errors.Join(err, conn.Close()))
	status, err := outbox.ReadStatus(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{name}, status.Partitions[0].Detaching)
	require.Empty(t, status.Partitions[1].Detaching)
	v, err := outbox.Validate(t.Context())
	require.Contains(t, problems(t, v, err), "warning: table outbox: the detach of partition "+name+" has not come to its end")
	require.NoError(t, reader.Rollback().Error)
	_, err = gormtx.RunRetention(t.Context(), db, 3650*day)
	require.NoError(t, err)
	v, err = outbox.Validate(t.Context())
	require.Empty(t, problems(t, v, err))
}
