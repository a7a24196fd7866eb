package model

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/driver/sqlite"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
	_ "modernc.org/sqlite" // the cgo-free driver

	"github.com/onward-go/outbox/gormtx"
	"github.com/onward-go/outbox/outboxtest"
	"github.com/onward-go/outbox/persistence"
)

// openSQLite returns a way to open empty outboxes in SQLite, which are copies of
// a file.
//
// SQLite's clock is not the bubble's. So leases expire by hand when time passes,
// and rows do not grow old. It has one writer, so nobody may stand still in a
// transaction.
func openSQLite(t *testing.T) func() backend {
	dir := t.TempDir()
	template := connect(filepath.Join(dir, "template.db"), "delete")
	require.NoError(t, gormtx.New(template).Migrate(t.Context()))
	require.NoError(t, template.Exec("CREATE TABLE effects (number INTEGER PRIMARY KEY, handler TEXT NOT NULL, event TEXT NOT NULL)").Error)
	disconnect(template)
	empty, err := os.ReadFile(filepath.Join(dir, "template.db"))
	require.NoError(t, err)
	var opened atomic.Int64
	return func() backend {
		file := filepath.Join(dir, fmt.Sprintf("%d.db", opened.Add(1)))
		if err := os.WriteFile(file, empty, 0o600); err != nil {
			panic(err)
		}
		b := sqliteBackend(connect(file, "wal"))
		closed := b.close
		b.close = func() {
			closed()
			for _, suffix := range []string{"", "-wal", "-shm"} {
				_ = os.Remove(file + suffix)
			}
		}
		return b
	}
}

func connect(file, journal string) *gorm.DB {
	dsn := "file:" + file + "?_pragma=busy_timeout(10000)&_pragma=synchronous(off)&_pragma=journal_mode(" + journal + ")"
	db, err := gorm.Open(sqlite.Dialector{DriverName: "sqlite", DSN: dsn}, &gorm.Config{Logger: logger.Discard})
	if err != nil {
		panic(err)
	}
	return db
}

func disconnect(db *gorm.DB) {
	pool, err := db.DB()
	if err == nil {
		err = pool.Close()
	}
	if err != nil {
		panic(err)
	}
}

func sqliteBackend(db *gorm.DB) backend {
	outbox := gormtx.New(db)
	return backend{
		Backend: outboxtest.Backend{
			Transactor:  outbox,
			Outbox:      outbox,
			Cursors:     outbox,
			Admin:       outbox,
			Idempotency: outbox,
			DeadLetters: outbox,
			OneWriter:   true,
			Insert: func(ctx context.Context, r persistence.Record) error {
				return db.WithContext(ctx).Exec(`
INSERT INTO outbox (id, account_id, aggregate_type, aggregate_id, event_type, payload, created_time) VALUES (?, ?, ?, ?, ?, x'', ?)`,
					r.ID, r.AccountID, r.AggregateType, r.AggregateID, r.EventType, r.CreatedTime.UnixMicro()).Error
			},
		},
		apply: func(ctx context.Context, e effect) error {
			return gormtx.Tx(ctx).Exec("INSERT INTO effects (handler, event) VALUES (?, ?)", e.handler, e.event).Error
		},
		applied: func(ctx context.Context) []effect {
			var all []effect
			rows, err := db.WithContext(ctx).Raw("SELECT handler, event FROM effects ORDER BY number").Rows()
			if err != nil {
				panic(err)
			}
			defer func() { _ = rows.Close() }()
			for rows.Next() {
				var e effect
				if err := rows.Scan(&e.handler, &e.event); err != nil {
					panic(err)
				}
				all = append(all, e)
			}
			if err := rows.Err(); err != nil {
				panic(err)
			}
			return all
		},
		pass: func(d time.Duration) {
			if err := db.Exec("UPDATE outbox_cursors SET expires_time = expires_time - ? WHERE expires_time IS NOT NULL", d.Microseconds()).Error; err != nil {
				panic(err)
			}
		},
		close: func() { disconnect(db) },
	}
}
