package guide_test

import (
	"database/sql"
	"os"
	"path/filepath"

	_ "modernc.org/sqlite"
)

// exampleDB opens a database that goes with the returned function.
func exampleDB() (*sql.DB, func()) {
	dir, err := os.MkdirTemp("", "outbox")
	if err != nil {
		panic(err)
	}
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "app.db")+"?_pragma=busy_timeout(10000)&_pragma=journal_mode(wal)")
	if err != nil {
		panic(err)
	}
	_, err = db.Exec(`
CREATE TABLE users (id TEXT PRIMARY KEY, status TEXT NOT NULL);
CREATE TABLE api_keys (id TEXT PRIMARY KEY, user_id TEXT NOT NULL, status TEXT NOT NULL);
CREATE TABLE mails (event_id TEXT PRIMARY KEY, recipient TEXT NOT NULL, sent BOOLEAN NOT NULL DEFAULT FALSE);
INSERT INTO users VALUES ('u-1', 'active');
INSERT INTO api_keys VALUES ('k-1', 'u-1', 'live')`)
	if err != nil {
		panic(err)
	}
	return db, func() {
		_ = db.Close()
		_ = os.RemoveAll(dir)
	}
}
