package sqltx_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"gorm.io/driver/sqlite"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/gormtx"
	"github.com/onward-go/outbox/persistence"
	"github.com/onward-go/outbox/sqltx"
)

type user struct{ ID, Status string }

// On one pool, each face takes part in the transactions of the other.
func TestGORMAndSQLShareATransaction(t *testing.T) {
	pool, bySQL := migrated(t)
	db, err := gorm.Open(sqlite.Dialector{Conn: pool}, &gorm.Config{Logger: logger.Discard})
	require.NoError(t, err)
	byGORM := gormtx.New(db)
	for name, transactor := range map[string]persistence.Transactor{"gormtx": byGORM, "sqltx": bySQL} {
		for _, end := range []error{errRollback, nil} {
			require.ErrorIs(t, transactor.Atomically(t.Context(), func(ctx context.Context) error {
				require.NoError(t, insert(ctx, sqltx.Tx(ctx), name+"-sql"))
				require.NoError(t, insert(ctx, sqltx.DB(ctx, pool), name+"-sql-db"))
				require.NoError(t, gormtx.DB(ctx, db).Create(&user{name + "-gorm", "active"}).Error)
				require.ErrorIs(t, gormtx.DB(ctx, db).Exec("COMMIT").Error, persistence.ErrInTransaction)
				require.NoError(t, events.NewPublisher(bySQL).Publish(ctx, event(name+"-1")))
				require.NoError(t, events.NewPublisher(byGORM).Publish(ctx, event(name+"-2")))
				require.ErrorIs(t, byGORM.Atomically(ctx, func(ctx context.Context) error {
					require.NoError(t, events.NewPublisher(bySQL).Publish(ctx, event(name+"-3")))
					require.NoError(t, gormtx.DB(ctx, db).Create(&user{name + "-gone", "active"}).Error)
					return errRollback
				}), errRollback)
				return end
			}), end)
		}
	}
	require.Equal(t, []string{"gormtx-1", "gormtx-2", "sqltx-1", "sqltx-2"}, ids(t, pool, "outbox"))
	require.Equal(t, []string{"gormtx-gorm", "gormtx-sql", "gormtx-sql-db", "sqltx-gorm", "sqltx-sql", "sqltx-sql-db"}, ids(t, pool, "users"))

	// Where it is nobody's, GORM's Tx fails closed.
	require.NoError(t, bySQL.Atomically(t.Context(), func(ctx context.Context) error {
		require.ErrorIs(t, gormtx.Tx(ctx).Create(&user{"none", "active"}).Error, persistence.ErrNoTransaction)
		return nil
	}))
}

// A transaction that takes no statements any more does not let GORM write
// beside it.
func TestGORMFailsClosedWhereTheTransactionHasDied(t *testing.T) {
	pool, bySQL := migrated(t)
	db, err := gorm.Open(sqlite.Dialector{Conn: pool}, &gorm.Config{Logger: logger.Discard})
	require.NoError(t, err)
	for name, transactor := range map[string]persistence.Transactor{"gormtx": gormtx.New(db), "sqltx": bySQL} {
		require.Error(t, transactor.Atomically(t.Context(), func(ctx context.Context) error {
			require.Error(t, gormtx.DB(ctx, db).Exec("INSERT OR ROLLBACK INTO users VALUES (NULL, NULL)").Error)
			require.Error(t, gormtx.DB(ctx, db).Create(&user{"beside it", "active"}).Error, name)
			return nil
		}), name)
	}
	require.Empty(t, ids(t, pool, "users"))
}
