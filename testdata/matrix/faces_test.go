package matrix

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/gormtx"
	"github.com/onward-go/outbox/internal/facetest"
	"github.com/onward-go/outbox/persistence"
	"github.com/onward-go/outbox/sqltx"
)

// onDrivers runs a test on each server and driver, in a database with an outbox
// and a table notes. It gets a pool for each face.
func onDrivers(t *testing.T, test func(t *testing.T, server Server, db *gorm.DB, pool *sql.DB, outbox *sqltx.Outbox)) {
	for _, server := range Servers {
		if server.Again {
			continue
		}
		drivers := map[string]func(testing.TB, string) gorm.Dialector{
			"default": func(_ testing.TB, dsn string) gorm.Dialector { return server.Open(dsn) },
		}
		for name, mode := range server.Drivers {
			drivers[name] = mode.Open
		}
		for name, open := range drivers {
			t.Run(server.Name+"/"+name, func(t *testing.T) {
				t.Parallel()
				dsn := server.New(t)
				db := Open(t, server.Open(dsn), &gorm.Config{Logger: logger.Discard})
				require.NoError(t, db.AutoMigrate(&note{}))
				pool, err := Open(t, open(t, dsn), &gorm.Config{Logger: logger.Discard}).DB()
				require.NoError(t, err)
				outbox := sqltx.New(pool, sqltx.Dialect(db.Name()))
				require.NoError(t, outbox.Migrate(t.Context()))
				test(t, server, db, pool, outbox)
			})
		}
	}
}

// A transaction that the user has begun ends as he likes, and the event with it.
func TestTheUsersOwnSQLTransaction(t *testing.T) {
	t.Parallel()
	onDrivers(t, func(t *testing.T, _ Server, db *gorm.DB, pool *sql.DB, outbox *sqltx.Outbox) {
		publisher := events.NewPublisher(outbox)
		insert := facetest.Numbered(db.Name(), "INSERT INTO notes (id) VALUES (?)")
		for _, end := range []func(*sql.Tx) error{(*sql.Tx).Rollback, (*sql.Tx).Commit} {
			tx, err := pool.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			ctx, err := outbox.WithTx(t.Context(), tx)
			require.NoError(t, err)
			_, err = tx.ExecContext(ctx, insert, "by hand")
			require.NoError(t, err)
			require.NoError(t, publisher.Publish(ctx, newEvents(1)...))
			require.Error(t, outbox.Atomically(ctx, func(ctx context.Context) error {
				require.NoError(t, publisher.Publish(ctx, newEvents(3)...))
				return errors.New("back to the savepoint")
			}))
			_, err = sqltx.Tx(ctx).ExecContext(ctx, insert, "by Tx")
			require.NoError(t, err)
			require.ErrorIs(t, persistence.AfterCommit(ctx, func(context.Context) {}), persistence.ErrCommitNotObserved)
			require.NoError(t, end(tx))
			require.ErrorIs(t, publisher.Publish(ctx, newEvents(1)...), persistence.ErrNoTransaction)
			_, err = sqltx.Tx(ctx).ExecContext(ctx, insert, "late")
			require.Error(t, err)
		}
		requireRows(t, db, "outbox", 1)
		requireRows(t, db, "notes", 2)
	})
}

// A transaction without QueryRowContext, as ent's, has rows all the same, and
// their errors.
func TestPostgresRowOfAWrappedTransaction(t *testing.T) {
	t.Parallel()
	onDrivers(t, func(t *testing.T, _ Server, db *gorm.DB, pool *sql.DB, outbox *sqltx.Outbox) {
		if db.Name() != "postgres" {
			t.Skip("what fails half-way, and how, is PostgreSQL's")
		}
		tx, err := pool.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		defer func() { require.NoError(t, tx.Rollback()) }()
		ctx, err := outbox.WithTx(t.Context(), struct{ sqltx.Transaction }{tx})
		require.NoError(t, err)
		var n int
		require.NoError(t, sqltx.Tx(ctx).QueryRowContext(ctx, "SELECT n FROM generate_series(7, 9) AS n").Scan(&n))
		require.Equal(t, 7, n)
		err = sqltx.Tx(ctx).QueryRowContext(ctx, "SELECT 1 / n FROM generate_series(0, 9) AS n").Scan(&n)
		require.ErrorContains(t, err, "division by zero")
		require.ErrorIs(t, events.NewPublisher(outbox).Publish(ctx, newEvents(1)...), persistence.ErrNoTransaction)
	})
}

// What a service publishes through one face, it dispatches through another.
func TestFacesShareTheTables(t *testing.T) {
	t.Parallel()
	onDrivers(t, func(t *testing.T, server Server, db *gorm.DB, pool *sql.DB, bySQL *sqltx.Outbox) {
		byGORM := gormtx.New(db)
		require.NoError(t, byGORM.Migrate(t.Context()), "it is done")
		insert := facetest.Numbered(db.Name(), "INSERT INTO notes (id) VALUES (?)")
		for id, c := range map[string]struct {
			producer facetest.Outbox
			consumer facetest.Outbox
			handler  events.Handler
		}{
			"from-gorm-to-sql": {byGORM, bySQL, func(ctx context.Context, evt events.Event) error {
				_, err := sqltx.Tx(ctx).ExecContext(ctx, insert, evt.ID)
				return err
			}},
			"from-sql-to-gorm": {bySQL, byGORM, func(ctx context.Context, evt events.Event) error {
				return gormtx.Tx(ctx).Create(&note{evt.ID}).Error
			}},
		} {
			require.NoError(t, c.producer.Atomically(t.Context(), func(ctx context.Context) error {
				return events.NewPublisher(c.producer).Publish(ctx, events.Event{ID: id, Type: id, AggregateType: "a", AggregateID: "1"})
			}))
			d := events.NewDispatcher(c.consumer, c.consumer, c.consumer, c.consumer)
			require.NoError(t, d.Subscribe(id, "h", c.handler))
			for range 2 { // the second time by a marker that the other face wrote
				for n := 0; n == 0; {
					var err error
					n, err = d.RunOnce(t.Context(), 100)
					require.NoError(t, err)
				}
				require.NoError(t, c.producer.Rewind(t.Context(), events.DefaultName, persistence.Cursor{}))
			}
		}
		var notes []string
		require.NoError(t, db.Model(&note{}).Order("id").Pluck("id", &notes).Error)
		require.Equal(t, []string{"from-gorm-to-sql", "from-sql-to-gorm"}, notes)

		// And what one has dropped the other does not look for.
		if server.Partitions {
			require.NoError(t, facetest.Partition(t.Context(), pool, db.Name(), facetest.Naming{}, startOfMonth(-6)))
		}
		report, err := sqltx.RunRetention(t.Context(), pool, sqltx.Dialect(db.Name()), 90*day)
		require.NoError(t, err)
		require.Equal(t, server.Partitions, len(report.Dropped) == 2, report)
		report, err = gormtx.RunRetention(t.Context(), db, 90*day)
		require.NoError(t, err)
		require.Empty(t, report.Dropped)
		requireRows(t, db, "outbox", 2)
	})
}
