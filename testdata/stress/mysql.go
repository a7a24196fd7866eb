package main

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"time"

	driver "github.com/go-sql-driver/mysql"
	"gorm.io/driver/mysql"
	"gorm.io/gorm"

	"github.com/onward-go/outbox/gormtx"
	"github.com/onward-go/outbox/persistence"
	"github.com/onward-go/outbox/testdata/servers"
)

// mysqlFamily is MySQL or MariaDB; variable is the name of its system variable
// for the isolation level.
func mysqlFamily(variable string) family {
	return family{
		open: func(dsn, isolation string) (gorm.Dialector, error) {
			config, err := driver.ParseDSN(dsn)
			if err != nil {
				return nil, err
			}
			if isolation != "" {
				if config.Params == nil {
					config.Params = map[string]string{}
				}
				config.Params[variable] = "'" + strings.ReplaceAll(isolation, " ", "-") + "'"
			}
			return mysql.Open(config.FormatDSN()), nil
		},
		serial: "BIGINT AUTO_INCREMENT",
		prepare: func(ctx context.Context, dsn string) (string, error) {
			return servers.MySQLDatabase(ctx, dsn, "outbox_stress")
		},
		// A deadlock, a lock that was not had in time, a row that has changed
		// since the snapshot.
		again: func(err error) bool {
			failed, ok := errors.AsType[*driver.MySQLError](err)
			return ok && slices.Contains([]uint16{1213, 1205, 1020}, failed.Number)
		},
		controls: map[string]control{
			// A plain cursor, without a mark.
			"plain": {read: func(ctx context.Context, db *database, after persistence.Cursor, limit int) ([]persistence.Record, error) {
				return mysqlRows(ctx, db, sql.LevelReadCommitted, after, limit)
			}},
			// Dirty reads tell what is in flight: what they show, and committed
			// reads right after them do not, is still open, and the cursor stops
			// before it. But a row that has its stamp and is not yet in the
			// table shows in neither. The sleep stands for a server that loses
			// its processor between the two; it has to outlast the others.
			"dirtyread": {read: readDirty, append: appendSlowly},
		},
	}
}

func readDirty(ctx context.Context, db *database, after persistence.Cursor, limit int) ([]persistence.Record, error) {
	dirty, err := mysqlRows(ctx, db, sql.LevelReadUncommitted, after, limit)
	if err != nil {
		return nil, err
	}
	committed, err := mysqlRows(ctx, db, sql.LevelReadCommitted, after, limit)
	if err != nil {
		return nil, err
	}
	known := map[persistence.Cursor]bool{}
	for _, r := range committed {
		known[r.Cursor()] = true
	}
	open := slices.IndexFunc(dirty, func(r persistence.Record) bool { return !known[r.Cursor()] })
	if open >= 0 {
		dirty = dirty[:open]
	}
	return dirty, nil
}

func appendSlowly(ctx context.Context, db *database, r persistence.Record) error {
	return gormtx.Tx(ctx).Exec(db.expand(`
INSERT INTO {prefix}outbox (id, aggregate_type, aggregate_id, event_type, payload, created_time)
SELECT ?, ?, ?, ?, ?, stamp.at
FROM (SELECT SYSDATE(6) AS at, SLEEP(CASE WHEN RAND() < 0.02 THEN 0.5 ELSE 0 END) AS slept LIMIT 1) AS stamp WHERE stamp.slept = 0`),
		r.ID, r.AggregateType, r.AggregateID, r.EventType, r.Payload).Error
}

// mysqlTime is the layout of a DATETIME(6) as text.
const mysqlTime = "2006-01-02 15:04:05.000000"

// mysqlRows reads what an isolation level shows after the cursor. Times are
// text, so that the driver's settings do not matter.
func mysqlRows(ctx context.Context, db *database, level sql.IsolationLevel, after persistence.Cursor, limit int) (found []persistence.Record, err error) {
	var rows []struct {
		ID, AggregateID, Stamp string
		Payload                []byte
	}
	err = db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		at := max(after.CreatedTime.UTC().Format(mysqlTime), "1000-01-01") // the lowest of its kind
		return tx.Raw(db.expand(`
SELECT id, aggregate_id, payload, CAST(created_time AS CHAR) AS stamp FROM {prefix}outbox
WHERE created_time >= ? AND (created_time > ? OR id > ?) ORDER BY created_time, id LIMIT ?`),
			at, at, after.ID, limit).Scan(&rows).Error
	}, &sql.TxOptions{Isolation: level, ReadOnly: true})
	if err != nil {
		return nil, err
	}
	for _, r := range rows {
		at, err := time.Parse(mysqlTime, r.Stamp)
		if err != nil {
			return nil, err
		}
		found = append(found, persistence.Record{ID: r.ID, AggregateID: r.AggregateID, Payload: r.Payload, CreatedTime: at})
	}
	return found, nil
}
