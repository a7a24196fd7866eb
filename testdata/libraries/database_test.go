package libraries_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"

	"github.com/jmoiron/sqlx"
	"github.com/uptrace/bun"
	_ "modernc.org/sqlite"

	"github.com/onward-go/outbox/sqltx"
)

// What they begin can be enlisted as it is.
var (
	_ sqltx.Transaction = bun.Tx{}
	_ sqltx.Transaction = (*sqlx.Tx)(nil)
)

// exampleDB opens a database that goes with the returned function. It has the tables
// of the outbox, and a user with two live API keys.
func exampleDB(ctx context.Context) (*sql.DB, func()) {
	dir, err := os.MkdirTemp("", "outbox")
	if err != nil {
		panic(err)
	}
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "app.db")+
		"?_pragma=busy_timeout(10000)&_pragma=journal_mode(wal)&_txlock=immediate")
	if err != nil {
		panic(err)
	}
	_, tablesErr := db.ExecContext(ctx, `
		CREATE TABLE users (id TEXT PRIMARY KEY, status TEXT NOT NULL);
		CREATE TABLE api_keys (id TEXT PRIMARY KEY, user_id TEXT NOT NULL, status TEXT NOT NULL);
		INSERT INTO users VALUES ('u-1', 'active');
		INSERT INTO api_keys VALUES ('k-1', 'u-1', 'live'), ('k-2', 'u-1', 'live')`)
	if err := errors.Join(tablesErr, sqltx.Migrate(ctx, db, sqltx.SQLite)); err != nil {
		panic(err)
	}
	return db, func() {
		_ = db.Close()
		_ = os.RemoveAll(dir)
	}
}
