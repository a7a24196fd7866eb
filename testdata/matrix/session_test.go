package matrix

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/onward-go/outbox/gormtx"
	"github.com/onward-go/outbox/persistence"
)

type note struct{ ID string }

// What GORM makes of the transaction's handle stays in the transaction, and
// nothing that is left behind blocks its end.
func TestSessionsOfTheTransactionStayInIt(t *testing.T) {
	t.Parallel()
	rollback := errors.New("roll back")
	for _, server := range Servers {
		t.Run(server.Name, func(t *testing.T) {
			db := Open(t, server.Gorm(t), &gorm.Config{Logger: logger.Discard})
			outbox := gormtx.New(db)
			require.NoError(t, outbox.Migrate(t.Context()))
			require.NoError(t, db.AutoMigrate(&note{}))
			for range 2 { // the second time from the cache of statements
				require.ErrorIs(t, outbox.Atomically(t.Context(), func(ctx context.Context) error {
					require.NoError(t, gormtx.Tx(ctx).Session(&gorm.Session{PrepareStmt: true}).Create(&note{"1"}).Error)
					require.ErrorIs(t, gormtx.Tx(ctx).Transaction(func(tx *gorm.DB) error {
						require.NoError(t, tx.Create(&note{"2"}).Error)
						return rollback
					}), rollback)
					require.ErrorIs(t, gormtx.Tx(ctx).Exec("COMMIT").Error, persistence.ErrInTransaction)
					rows, err := gormtx.Tx(ctx).Model(&note{}).Rows()
					require.NoError(t, err)
					require.True(t, rows.Next(), "and it is left open")
					return rollback
				}), rollback)
			}
			var n int64
			require.NoError(t, db.Model(&note{}).Count(&n).Error)
			require.Zero(t, n)
		})
	}
}
