package sqltx_test

import (
	"database/sql"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/onward-go/outbox/internal/facetest"
	"github.com/onward-go/outbox/internal/sqltest"
	"github.com/onward-go/outbox/outboxtest"
)

// driver is how to open a database file.
type driver struct{ name, params string }

// pure is the cgo-free driver; cgo_test.go adds the other.
var drivers = map[string]driver{
	"pure": {"sqlite", "?_pragma=busy_timeout(10000)&_pragma=journal_mode(wal)&_pragma=synchronous(off)&_pragma=foreign_keys(1)"},
}

// open opens a database file.
func (d driver) open(t testing.TB, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open(d.name, "file:"+path+d.params)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

// openNew opens a new database file.
func (d driver) openNew(t testing.TB) *sql.DB {
	t.Helper()
	return d.open(t, filepath.Join(t.TempDir(), "outbox.db"))
}

func TestConformance(t *testing.T) {
	for name, driver := range drivers {
		for variant, v := range map[string]struct {
			naming      facetest.Naming
			connections int
		}{
			"default":        {},
			"prefix":         {naming: facetest.Naming{Prefix: "Iam_"}},
			"one connection": {connections: 1},
		} {
			t.Run(name+"/"+variant, func(t *testing.T) {
				t.Parallel()
				outboxtest.Run(t, func(t testing.TB) outboxtest.Backend {
					db := driver.openNew(t)
					db.SetMaxOpenConns(v.connections)
					face := sqltest.Face(db, "sqlite", v.naming)
					face.Prepare(t)
					return face.Backend(t)
				})
			})
		}
	}
}
