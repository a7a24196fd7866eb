package gormtx_test

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/onward-go/outbox/gormtx"
	"github.com/onward-go/outbox/persistence"
)

func TestABusyDatabaseIsATransientFault(t *testing.T) {
	for name, driver := range drivers {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "outbox.db")
			db := open(t, driver(path))
			outbox := gormtx.New(db)
			require.NoError(t, outbox.Migrate(t.Context()))
			impatient, err := gorm.Open(driver(path), &gorm.Config{Logger: logger.Discard, TranslateError: true})
			require.NoError(t, err)
			pool, err := impatient.DB()
			require.NoError(t, err)
			defer func() { require.NoError(t, pool.Close()) }()
			pool.SetMaxOpenConns(1)
			require.NoError(t, impatient.Exec("PRAGMA busy_timeout = 0").Error)
			var judge interface {
				persistence.Transactor
				persistence.FaultJudge
			} = gormtx.NewGormTransactor(impatient)
			nothing := func(context.Context) error { return nil }
			require.NoError(t, outbox.Atomically(t.Context(), func(ctx context.Context) error {
				err := judge.Atomically(t.Context(), nothing)
				require.Error(t, err)
				require.True(t, judge.IsTransient(err), err)
				require.True(t, outbox.IsTransient(err), err)
				return nil
			}))
			require.NoError(t, judge.Atomically(t.Context(), nothing))
			err = outbox.Atomically(t.Context(), func(ctx context.Context) error { return gormtx.Tx(ctx).Exec("nonsense").Error })
			require.Error(t, err)
			require.False(t, outbox.IsTransient(err), err)
		})
	}
	require.False(t, gormtx.New(nil).IsTransient(persistence.ErrInvalid))
}
