// Package gormtest puts gormtx under the conformance suite, on any database
// that it supports.
package gormtest

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/onward-go/outbox/gormtx"
	"github.com/onward-go/outbox/outboxtest"
	"github.com/onward-go/outbox/persistence"
)

// Backend returns an outbox in an empty database, migrated.
func Backend(t testing.TB, db *gorm.DB, naming Naming) outboxtest.Backend {
	t.Helper()
	ctx := t.Context()
	outbox := gormtx.New(db, naming.Options()...)
	require.NoError(t, outbox.Migrate(ctx))
	d := dialects[db.Name()]
	for _, statement := range d.tables {
		require.NoError(t, db.Exec(statement).Error)
	}
	sqlDB, err := db.DB()
	require.NoError(t, err)
	return outboxtest.Backend{
		Transactor:  outbox,
		Outbox:      outbox,
		Cursors:     outbox,
		Admin:       outbox,
		Idempotency: outbox,
		DeadLetters: outbox,
		Put: func(ctx context.Context, key, value string) error {
			return gormtx.Tx(ctx).Exec("INSERT INTO outboxtest_state (k, v) VALUES (?, ?) ON CONFLICT (k) DO UPDATE SET v = excluded.v", key, value).Error
		},
		Get: func(ctx context.Context, key string) (string, error) {
			var value string
			err := db.WithContext(ctx).Raw("SELECT v FROM outboxtest_state WHERE k = ?", key).Scan(&value).Error
			return value, err
		},
		EndTransaction: func(ctx context.Context) error { return gormtx.Tx(ctx).Exec(d.endTransaction).Error },
		FailCommit: func(ctx context.Context) error {
			return gormtx.Tx(ctx).Exec("INSERT INTO outboxtest_child (k) VALUES ('missing')").Error
		},
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
		OneWriter:     d.oneWriter,
		OneConnection: sqlDB.Stats().MaxOpenConnections == 1,
	}
}

// dialect is what the suite needs to know of a database.
type dialect struct {
	tables         []string
	endTransaction string
	time           func(persistence.Record) any
	oneWriter      bool
}

var dialects = map[string]dialect{
	"postgres": {
		tables: []string{
			"CREATE TABLE outboxtest_state (k text PRIMARY KEY, v text NOT NULL)",
			"CREATE TABLE outboxtest_child (k text REFERENCES outboxtest_state DEFERRABLE INITIALLY DEFERRED)",
		},
		endTransaction: "SELECT pg_terminate_backend(pg_backend_pid())",
		time:           func(r persistence.Record) any { return r.CreatedTime },
	},
	"sqlite": {
		tables: []string{
			"CREATE TABLE outboxtest_state (k TEXT PRIMARY KEY NOT NULL, v TEXT NOT NULL)",
			"CREATE TABLE outboxtest_child (k TEXT REFERENCES outboxtest_state DEFERRABLE INITIALLY DEFERRED)",
		},
		endTransaction: "INSERT OR ROLLBACK INTO outboxtest_state (k, v) VALUES (NULL, NULL)",
		time:           func(r persistence.Record) any { return r.CreatedTime.UnixMicro() },
		oneWriter:      true,
	},
}
