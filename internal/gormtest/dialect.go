package gormtest

import (
	"context"
	"time"

	"gorm.io/gorm"

	"github.com/onward-go/outbox/gormtx"
	"github.com/onward-go/outbox/persistence"
)

// dialect is what the suite needs to know of a database.
type dialect struct {
	tables         []string
	upsert         string
	endTransaction func(ctx context.Context, db *gorm.DB) error
	failCommit     func(ctx context.Context, db *gorm.DB) error
	time           func(persistence.Record) any
	oneWriter      bool
	// partition cuts the first partition of a table; nil where there are none.
	partition func(ctx context.Context, db *gorm.DB, naming Naming, table string, ends []time.Time) error
	// savepointsBlock may be nil.
	savepointsBlock func(db *gorm.DB) bool
	// snapshots may be nil.
	snapshots func(db *gorm.DB) bool
}

var dialects = map[string]dialect{
	"postgres": {
		tables: []string{
			"CREATE TABLE outboxtest_state (k text PRIMARY KEY, v text NOT NULL)",
			"CREATE TABLE outboxtest_child (k text REFERENCES outboxtest_state DEFERRABLE INITIALLY DEFERRED)",
		},
		upsert:         "INSERT INTO outboxtest_state (k, v) VALUES (?, ?) ON CONFLICT (k) DO UPDATE SET v = excluded.v",
		endTransaction: statement("SELECT pg_terminate_backend(pg_backend_pid())"),
		failCommit:     statement("INSERT INTO outboxtest_child (k) VALUES ('missing')"),
		time:           func(r persistence.Record) any { return r.CreatedTime },
		partition:      cutPostgres,
	},
	"sqlite": {
		tables: []string{
			"CREATE TABLE outboxtest_state (k TEXT PRIMARY KEY NOT NULL, v TEXT NOT NULL)",
			"CREATE TABLE outboxtest_child (k TEXT REFERENCES outboxtest_state DEFERRABLE INITIALLY DEFERRED)",
		},
		upsert:         "INSERT INTO outboxtest_state (k, v) VALUES (?, ?) ON CONFLICT (k) DO UPDATE SET v = excluded.v",
		endTransaction: statement("INSERT OR ROLLBACK INTO outboxtest_state (k, v) VALUES (NULL, NULL)"),
		failCommit:     statement("INSERT INTO outboxtest_child (k) VALUES ('missing')"),
		time:           func(r persistence.Record) any { return r.CreatedTime.UnixMicro() },
		oneWriter:      true,
	},
	"mysql": {
		tables: []string{
			"CREATE TABLE outboxtest_state (k VARBINARY(255) PRIMARY KEY, v VARBINARY(255) NOT NULL) ENGINE=InnoDB",
			"CREATE TABLE outboxtest_lock (k INT PRIMARY KEY, v INT NOT NULL) ENGINE=InnoDB",
			"INSERT INTO outboxtest_lock VALUES (1, 0), (2, 0)",
		},
		upsert:          "INSERT INTO outboxtest_state (k, v) VALUES (?, ?) ON DUPLICATE KEY UPDATE v = VALUES(v)",
		endTransaction:  deadlock,
		failCommit:      disconnect,
		savepointsBlock: gapLocks,
		snapshots:       snapshotIsolation,
		partition:       cutMySQL,
		time:            func(r persistence.Record) any { return r.CreatedTime.UTC().Format("2006-01-02 15:04:05.000000") },
	},
}

// statement runs one statement in the transaction.
func statement(text string) func(context.Context, *gorm.DB) error {
	return func(ctx context.Context, _ *gorm.DB) error { return gormtx.Tx(ctx).Exec(text).Error }
}
