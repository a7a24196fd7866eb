package matrix

import (
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/golang-migrate/migrate/v4"
	migratedriver "github.com/golang-migrate/migrate/v4/database"
	migratemysql "github.com/golang-migrate/migrate/v4/database/mysql"
	migratepgx "github.com/golang-migrate/migrate/v4/database/pgx/v5"
	migratesqlite "github.com/golang-migrate/migrate/v4/database/sqlite"
	"github.com/golang-migrate/migrate/v4/source/iofs"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/onward-go/outbox/gormtx"
	"github.com/onward-go/outbox/schema"
)

// writeUpFiles writes the outbox's migrations as files for golang-migrate. The guide
// shows it.
func writeUpFiles(dir, dialect string, naming schema.Naming) error {
	migrations, err := schema.Render(dialect, naming) // schema.Postgres, schema.Naming{Schema: "outbox"}
	if err != nil {
		return err
	}
	for _, m := range migrations {
		name := fmt.Sprintf("202601010000%02d_outbox_%s.up.sql", m.Version, m.Name)
		text := strings.Join(m.Statements, "\n") + "\n"
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// The library works on tables that golang-migrate has made, and finds them up to date.
func TestTablesThatGolangMigrateMakes(t *testing.T) {
	drivers := map[string]func(t *testing.T, dsn string) (migratedriver.Driver, error){
		"postgres": func(t *testing.T, dsn string) (migratedriver.Driver, error) {
			return migratepgx.WithInstance(openPool(t, "pgx", dsn), &migratepgx.Config{})
		},
		"mysql": func(t *testing.T, dsn string) (migratedriver.Driver, error) {
			return migratemysql.WithInstance(openPool(t, "mysql", dsn+"?multiStatements=true"), &migratemysql.Config{})
		},
		"sqlite": func(t *testing.T, dsn string) (migratedriver.Driver, error) {
			return migratesqlite.WithInstance(openPool(t, "sqlite", dsn), &migratesqlite.Config{})
		},
	}
	for _, server := range Servers {
		t.Run(server.Name, func(t *testing.T) {
			dsn := server.New(t)
			db := Open(t, server.Open(dsn), &gorm.Config{Logger: logger.Discard})
			naming, options := schema.Naming{Prefix: "iam_"}, []gormtx.Option{gormtx.WithTablePrefix("iam_")}
			if server.Schemas {
				naming, options = schema.Naming{Schema: "outbox"}, []gormtx.Option{gormtx.WithSchema("outbox")}
			}
			dir := t.TempDir()
			require.NoError(t, writeUpFiles(dir, db.Name(), naming))
			source, err := iofs.New(os.DirFS(dir), ".")
			require.NoError(t, err)
			driver, err := drivers[db.Name()](t, dsn)
			require.NoError(t, err)
			m, err := migrate.NewWithInstance("iofs", source, db.Name(), driver)
			require.NoError(t, err)
			require.NoError(t, m.Up())
			deliversOnTheTables(t, gormtx.New(db, options...))
		})
	}
}

func openPool(t *testing.T, driver, dsn string) *sql.DB {
	t.Helper()
	pool, err := sql.Open(driver, dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = pool.Close() })
	return pool
}
