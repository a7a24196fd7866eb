package main

import (
	"context"
	"database/sql"
	"strings"
	"time"

	"gorm.io/gorm"

	"github.com/onward-go/outbox/gormtx"
	"github.com/onward-go/outbox/persistence"
)

// control is a way to do it wrong.
type control struct {
	// read returns the rows after the cursor; nil: the library's.
	read func(ctx context.Context, db *database, after persistence.Cursor, limit int) ([]persistence.Record, error)
	// append writes one record; nil: the library's.
	append func(ctx context.Context, db *database, r persistence.Record) error
}

var controls = map[string]control{
	// A plain cursor, without a mark.
	"plain": {read: func(ctx context.Context, db *database, after persistence.Cursor, limit int) ([]persistence.Record, error) {
		return rows(db.WithContext(ctx), db.expand(rowsBelow("'infinity'")), after, limit)
	}},
	// Mark and rows in one statement, so in one snapshot: a transaction that
	// commits in between is gone from the locks and not yet in the snapshot.
	"onestatement": {read: func(ctx context.Context, db *database, after persistence.Cursor, limit int) ([]persistence.Record, error) {
		return rows(db.WithContext(ctx), db.expand(rowsBelow("("+markSQL+")")), after, limit)
	}},
	// The same with two statements that share a snapshot.
	"repeatableread": {read: func(ctx context.Context, db *database, after persistence.Cursor, limit int) (found []persistence.Record, err error) {
		err = db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
			var mark time.Time
			if err := tx.Raw(db.expand(markSQL)).Scan(&mark).Error; err != nil {
				return err
			}
			found, err = rows(tx, db.expand(rowsBelow("'"+mark.UTC().Format(time.RFC3339Nano)+"'")), after, limit)
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
}

const markSQL = `
SELECT least(statement_timestamp(), timestamptz 'epoch' + (
  SELECT min((classid::bigint & 4095) << 32 | objid::bigint) FROM pg_locks
  WHERE locktype = 'advisory' AND objsubid = 1
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND classid::bigint >> 12 = '{prefix}outbox'::regclass::oid::bigint & 524287) * interval '1 millisecond')`

func rowsBelow(mark string) string {
	return `SELECT id, aggregate_id, payload, created_time FROM {prefix}outbox
WHERE (created_time, id) > (?, ?) AND created_time < ` + mark + ` ORDER BY created_time, id LIMIT ?`
}

func (d *database) expand(query string) string {
	return strings.ReplaceAll(query, "{prefix}", d.prefix)
}

func rows(db *gorm.DB, query string, after persistence.Cursor, limit int) (found []persistence.Record, err error) {
	err = db.Raw(query, after.CreatedTime, after.ID, limit).Scan(&found).Error
	return found, err
}

// controlStore is the library's store, with one thing done wrong.
type controlStore struct {
	persistence.OutboxStore
	db      *database
	control control
}

func (c controlStore) Append(ctx context.Context, records ...persistence.Record) error {
	for _, r := range records {
		if err := c.control.append(ctx, c.db, r); err != nil {
			return err
		}
	}
	return nil
}

func (c controlStore) ReadAfter(ctx context.Context, after persistence.Cursor, limit int) ([]persistence.Record, error) {
	if c.control.read == nil {
		return c.OutboxStore.ReadAfter(ctx, after, limit)
	}
	return c.control.read(ctx, c.db, after, limit)
}
