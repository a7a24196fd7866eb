package matrix

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/pressly/goose/v3"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/eventstest"
	"github.com/onward-go/outbox/gormtx"
	"github.com/onward-go/outbox/schema"
)

// writeMigrations writes the outbox's migrations as files for goose. The guide
// shows it.
func writeMigrations(dir, dialect string, naming schema.Naming) error {
	migrations, err := schema.Render(dialect, naming) // schema.Postgres, schema.Naming{Schema: "outbox"}
	if err != nil {
		return err
	}
	for _, m := range migrations {
		text := "-- +goose Up\n"
		for _, statement := range m.Statements {
			text += "-- +goose StatementBegin\n" + statement + ";\n-- +goose StatementEnd\n"
		}
		name := fmt.Sprintf("202601010000%02d_outbox_%s.sql", m.Version, m.Name)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// The library works on tables that goose has made, and finds them up to date.
func TestTablesThatGooseMakes(t *testing.T) {
	dialects := map[string]goose.Dialect{"postgres": goose.DialectPostgres, "mysql": goose.DialectMySQL, "sqlite": goose.DialectSQLite3}
	for _, server := range Servers {
		t.Run(server.Name, func(t *testing.T) {
			db := Open(t, server.Gorm(t), &gorm.Config{Logger: logger.Discard})
			naming, options := schema.Naming{Prefix: "iam_"}, []gormtx.Option{gormtx.WithTablePrefix("iam_")}
			if server.Schemas {
				naming, options = schema.Naming{Schema: "outbox"}, []gormtx.Option{gormtx.WithSchema("outbox")}
			}
			dir := t.TempDir()
			require.NoError(t, writeMigrations(dir, db.Name(), naming))
			pool, err := db.DB()
			require.NoError(t, err)
			provider, err := goose.NewProvider(dialects[db.Name()], pool, os.DirFS(dir))
			require.NoError(t, err)
			applied, err := provider.Up(t.Context())
			require.NoError(t, err)
			require.NotEmpty(t, applied)
			deliversOnTheTables(t, gormtx.New(db, options...))
		})
	}
}

// deliversOnTheTables publishes and delivers on tables that another tool has made.
func deliversOnTheTables(t *testing.T, outbox *gormtx.Outbox) {
	t.Helper()
	require.NoError(t, outbox.Atomically(t.Context(), func(ctx context.Context) error {
		return events.NewPublisher(outbox).Publish(ctx, eventstest.Events(3, "t")...)
	}))
	var handled eventstest.Recorder
	d := events.NewDispatcher(outbox, outbox, outbox, outbox)
	require.NoError(t, d.Subscribe("t", "h", handled.Handle))
	require.NoError(t, eventstest.Drain(t.Context(), d))
	require.Len(t, handled.Events(), 3)
	require.NoError(t, outbox.Migrate(t.Context()), "there is nothing to do")
}
