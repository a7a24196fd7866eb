package guide_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/onward-go/outbox/schema"
	"github.com/onward-go/outbox/sqltx"
)

// What a job of retention does.
func Example_retention() {
	db, done := exampleDB()
	defer done()
	_ = sqltx.Migrate(context.Background(), db, sqltx.SQLite)

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	report, err := sqltx.RunRetention(ctx, db, sqltx.SQLite, 90*24*time.Hour)
	for _, p := range report.Dropped {
		logger.Info("dropped", "table", p.Table, "partition", p.Name)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err) // and exit with 1, so that the scheduler tells somebody
	}

	fmt.Println(len(report.Dropped), err)
	// Output: 0 <nil>
}

// writeMigrations writes the outbox's migrations as files for goose.
func writeMigrations(dir string) error {
	migrations, err := schema.Render(schema.Postgres, schema.Naming{Schema: "outbox"})
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

// The tables in the migrations of a service.
func Example_migrations() {
	dir, err := os.MkdirTemp("", "migrations")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	fmt.Println(writeMigrations(dir))
	files, _ := os.ReadDir(dir)
	for _, f := range files {
		fmt.Println(f.Name())
	}
	// Output:
	// <nil>
	// 20260101000001_outbox_outbox.sql
}
