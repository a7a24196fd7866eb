package main

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"

	"github.com/onward-go/outbox/gormtx"
	"github.com/onward-go/outbox/persistence"
)

var postgresFamily = family{
	open: func(dsn, isolation string) (gorm.Dialector, error) {
		config, err := pgx.ParseConfig(dsn)
		if err != nil {
			return nil, err
		}
		if isolation != "" {
			config.RuntimeParams["default_transaction_isolation"] = strings.ToLower(isolation)
		}
		return postgres.New(postgres.Config{Conn: stdlib.OpenDB(*config)}), nil
	},
	serial:  "BIGSERIAL",
	prepare: func(_ context.Context, dsn string) (string, error) { return dsn, nil },
	again: func(err error) bool { // a serialization failure, a deadlock
		failed, ok := errors.AsType[*pgconn.PgError](err)
		return ok && (failed.Code == "40001" || failed.Code == "40P01")
	},
	controls: map[string]control{
		// A plain cursor, without a mark.
		"plain": {read: func(ctx context.Context, db *database, after persistence.Cursor, limit int) ([]persistence.Record, error) {
			return postgresRows(db.WithContext(ctx), db.expand(postgresBelow("'infinity'")), after, limit)
		}},
		// Mark and rows in one statement, so in one snapshot: a transaction that
		// commits in between is gone from the locks and not yet in the snapshot.
		"onestatement": {read: func(ctx context.Context, db *database, after persistence.Cursor, limit int) ([]persistence.Record, error) {
			return postgresRows(db.WithContext(ctx), db.expand(postgresBelow("("+postgresMark+")")), after, limit)
		}},
		// The same with two statements that share a snapshot.
		"repeatableread": {read: func(ctx context.Context, db *database, after persistence.Cursor, limit int) (found []persistence.Record, err error) {
			err = db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
				var mark time.Time
				if err := tx.Raw(db.expand(postgresMark)).Scan(&mark).Error; err != nil {
					return err
				}
				found, err = postgresRows(tx, db.expand(postgresBelow("'"+mark.UTC().Format(time.RFC3339Nano)+"'")), after, limit)
				return err
			}, &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
			return found, err
		}},
		// Stamp first, lock after. The sleep stands for a process that loses its
		// processor between the two; it has to outlast the other producers' locks.
		"stampbeforelock": {append: func(ctx context.Context, db *database, r persistence.Record) error {
			return gormtx.Tx(ctx).Exec(db.expand(`
WITH stamp AS MATERIALIZED (SELECT clock_timestamp() AS at, pg_sleep(CASE WHEN random() < 0.02 THEN 0.5 ELSE 0 END)),
fence AS MATERIALIZED (SELECT at, pg_advisory_xact_lock_shared(
  ('{prefix}outbox'::regclass::oid::bigint & 524287) << 44 | floor(extract(epoch FROM now()) * 1000)::bigint) FROM stamp)
INSERT INTO {prefix}outbox (id, aggregate_type, aggregate_id, event_type, payload, created_time)
SELECT ?, ?, ?, ?, ?::bytea, at FROM fence`),
				r.ID, r.AggregateType, r.AggregateID, r.EventType, r.Payload).Error
		}},
	},
}

const postgresMark = `
SELECT least(statement_timestamp(), timestamptz 'epoch' + (
  SELECT min((classid::bigint & 4095) << 32 | objid::bigint) FROM pg_locks
  WHERE locktype = 'advisory' AND objsubid = 1
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND classid::bigint >> 12 = '{prefix}outbox'::regclass::oid::bigint & 524287) * interval '1 millisecond')`

func postgresBelow(mark string) string {
	return `SELECT id, aggregate_id, payload, created_time FROM {prefix}outbox
WHERE (created_time, id) > (?, ?) AND created_time < ` + mark + ` ORDER BY created_time, id LIMIT ?`
}

func postgresRows(db *gorm.DB, query string, after persistence.Cursor, limit int) (found []persistence.Record, err error) {
	err = db.Raw(query, after.CreatedTime, after.ID, limit).Scan(&found).Error
	return found, err
}
