// Package gormtest puts gormtx under the conformance suite, on any database
// that it supports.
package gormtest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/onward-go/outbox/gormtx"
	"github.com/onward-go/outbox/outboxtest"
	"github.com/onward-go/outbox/persistence"
)

// Prepare makes what [Backend] needs in an empty database: the outbox and the
// application's tables.
func Prepare(t testing.TB, db *gorm.DB, naming Naming) {
	t.Helper()
	require.NoError(t, gormtx.New(db, naming.Options()...).Migrate(t.Context()))
	for _, statement := range dialects[db.Name()].tables {
		require.NoError(t, db.Exec(statement).Error)
	}
}

// Backend returns the outbox in a database that was prepared.
func Backend(t testing.TB, db *gorm.DB, naming Naming) outboxtest.Backend {
	t.Helper()
	outbox := gormtx.New(db, naming.Options()...)
	d := dialects[db.Name()]
	sqlDB, err := db.DB()
	require.NoError(t, err)
	backend := outboxtest.Backend{
		Transactor:  outbox,
		Outbox:      outbox,
		Cursors:     outbox,
		Admin:       outbox,
		Idempotency: outbox,
		DeadLetters: outbox,
		Retention:   outbox,
		Dedup:       outbox,
		Put: func(ctx context.Context, key, value string) error {
			return gormtx.Tx(ctx).Exec(d.upsert, key, value).Error
		},
		Get: func(ctx context.Context, key string) (string, error) {
			var value string
			err := db.WithContext(ctx).Raw("SELECT v FROM outboxtest_state WHERE k = ?", key).Scan(&value).Error
			return value, err
		},
		EndTransaction: func(ctx context.Context) error { return d.endTransaction(ctx, db) },
		FailCommit:     func(ctx context.Context) error { return d.failCommit(ctx, db) },
		Insert: func(ctx context.Context, r persistence.Record) error {
			row := map[string]any{
				"id": r.ID, "account_id": r.AccountID, "aggregate_type": r.AggregateType,
				"aggregate_id": r.AggregateID, "event_type": r.EventType, "payload": r.Payload,
			}
			if !r.CreatedTime.IsZero() {
				row["created_time"] = d.time(r)
			}
			return db.WithContext(ctx).Table(naming.Table("outbox")).Create(row).Error
		},
		OneWriter:       d.oneWriter,
		SavepointsBlock: d.savepointsBlock != nil && d.savepointsBlock(db),
		Snapshots:       d.snapshots != nil && d.snapshots(db),
		OneConnection:   sqlDB.Stats().MaxOpenConnections == 1,
	}
	if d.partition != nil {
		backend.Partition = func(ctx context.Context, ends ...time.Time) error {
			return Partition(ctx, db, naming, ends...)
		}
	}
	return backend
}
