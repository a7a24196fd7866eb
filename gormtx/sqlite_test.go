package gormtx_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"gorm.io/driver/sqlite"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
	_ "modernc.org/sqlite"

	"github.com/onward-go/outbox/internal/gormtest"
	"github.com/onward-go/outbox/outboxtest"
)

// pure is the cgo-free driver; cgo_test.go adds the other.
var drivers = map[string]func(path string) gorm.Dialector{
	"pure": func(path string) gorm.Dialector {
		return sqlite.Dialector{
			DriverName: "sqlite",
			DSN:        "file:" + path + "?_pragma=busy_timeout(10000)&_pragma=journal_mode(wal)&_pragma=synchronous(off)&_pragma=foreign_keys(1)",
		}
	},
}

func open(t testing.TB, dialector gorm.Dialector) *gorm.DB {
	t.Helper()
	db, err := gorm.Open(dialector, &gorm.Config{Logger: logger.Discard})
	require.NoError(t, err)
	sqlDB, err := db.DB()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, sqlDB.Close()) })
	return db
}

// openPure opens a new database file with the cgo-free driver.
func openPure(t testing.TB) *gorm.DB {
	return open(t, drivers["pure"](filepath.Join(t.TempDir(), "outbox.db")))
}

func TestConformance(t *testing.T) {
	for name, driver := range drivers {
		for variant, v := range map[string]struct {
			naming      gormtest.Naming
			connections int
			prepare     bool
		}{
			"default":        {},
			"prefix":         {naming: gormtest.Naming{Prefix: "Iam_"}},
			"one connection": {connections: 1},
			"prepared":       {prepare: true},
		} {
			t.Run(name+"/"+variant, func(t *testing.T) {
				t.Parallel()
				outboxtest.Run(t, func(t testing.TB) outboxtest.Backend {
					db := open(t, driver(filepath.Join(t.TempDir(), "outbox.db")))
					db = db.Session(&gorm.Session{PrepareStmt: v.prepare})
					sqlDB, err := db.DB()
					require.NoError(t, err)
					sqlDB.SetMaxOpenConns(v.connections)
					gormtest.Prepare(t, db, v.naming)
					return gormtest.Backend(t, db, v.naming)
				})
			})
		}
	}
}
