package matrix

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"gorm.io/driver/mysql"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/gormtx"
	"github.com/onward-go/outbox/persistence"
	"github.com/onward-go/outbox/testdata/servers"
)

// onMySQL runs a test on MySQL and MariaDB, in a new database.
func onMySQL(t *testing.T, test func(t *testing.T, dsn string)) {
	for _, kind := range []*servers.Kind{servers.MySQL, servers.MariaDB} {
		t.Run(kind.Name, func(t *testing.T) {
			t.Parallel()
			test(t, newDatabase(t, kind))
		})
	}
}

func TestMySQLReplicasMayMigrateAtOnce(t *testing.T) {
	t.Parallel()
	onMySQL(t, func(t *testing.T, dsn string) {
		results := make(chan error, 8)
		for range cap(results) {
			db := Open(t, mysql.Open(dsn), &gorm.Config{Logger: logger.Discard})
			go func() { results <- gormtx.Migrate(t.Context(), db) }()
		}
		for range cap(results) {
			require.NoError(t, <-results)
		}
	})
}

// A row by hand is refused, also where the SQL mode would make it a zero.
func TestMySQLRowWithoutAStampIsRefused(t *testing.T) {
	onMySQL(t, func(t *testing.T, dsn string) {
		db := Open(t, mysql.Open(dsn+"?sql_mode=%27%27"), &gorm.Config{Logger: logger.Discard})
		outbox := gormtx.New(db)
		require.NoError(t, outbox.Migrate(t.Context()))
		require.Error(t, db.Exec("INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, payload) VALUES ('a', 'a', '1', 't', '')").Error)
		var n int64
		require.NoError(t, db.Table("outbox").Count(&n).Error)
		require.Zero(t, n)
	})
}

// A deadlock rolls the whole transaction back and leaves the session in
// autocommit. Whoever swallows the error must not publish.
func TestMySQLDeadlockVictimThatSwallowsTheErrorPublishesNothing(t *testing.T) {
	onMySQL(t, func(t *testing.T, dsn string) {
		db := Open(t, mysql.Open(dsn), &gorm.Config{Logger: logger.Discard})
		outbox := gormtx.New(db)
		require.NoError(t, outbox.Migrate(t.Context()))
		require.NoError(t, db.Exec("CREATE TABLE counters (id INT PRIMARY KEY, n INT NOT NULL) ENGINE=InnoDB").Error)
		require.NoError(t, db.Exec("INSERT INTO counters VALUES (1, 0), (2, 0)").Error)
		publisher := events.NewPublisher(outbox)
		const touch = "UPDATE counters SET n = n + 1 WHERE id = ?"

		met := make(chan struct{}, 2)
		meet := [2]chan struct{}{make(chan struct{}), make(chan struct{})}
		results, published := make(chan error, 2), make(chan error, 2)
		for side := range 2 {
			go func() {
				results <- outbox.Atomically(t.Context(), func(ctx context.Context) error {
					if err := gormtx.Tx(ctx).Exec(touch, 1+side).Error; err != nil {
						return err
					}
					met <- struct{}{}
					<-meet[side]
					swallowed := gormtx.Tx(ctx).Exec(touch, 2-side).Error
					err := publisher.Publish(ctx, newEvents(1)...)
					if swallowed != nil {
						published <- err
					}
					return nil
				})
			}()
		}
		<-met
		<-met
		close(meet[0])
		close(meet[1])
		first, second := <-results, <-results
		require.True(t, (first == nil) != (second == nil), "one is the victim: %v, %v", first, second)
		require.ErrorIs(t, <-published, persistence.ErrNoTransaction)
		var events, changes int64
		require.NoError(t, db.Table("outbox").Count(&events).Error)
		require.NoError(t, db.Raw("SELECT SUM(n) FROM counters").Scan(&changes).Error)
		require.EqualValues(t, 1, events)
		require.EqualValues(t, 2, changes, "both changes of the other")
	})
}
