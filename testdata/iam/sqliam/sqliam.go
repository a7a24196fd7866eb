// Package sqliam wires the example to the outbox on database/sql.
//
// Its tables are users and api_keys.
package sqliam

import (
	"context"
	"database/sql"
	"fmt"
	"regexp"
	"strings"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/sqltx"
	"github.com/onward-go/outbox/testdata/iam/app"
)

// Wire returns the application's ports over an outbox and the database that it
// is in.
func Wire(db *sql.DB, dialect sqltx.Dialect, outbox *sqltx.Outbox) app.Ports {
	return app.Ports{
		Transactor: outbox,
		Publisher:  events.NewPublisher(outbox),
		Users:      users{db, dialect},
		APIKeys:    apiKeys{db, dialect},
	}
}

// Migrate creates the example's own tables. Those of the outbox are
// [sqltx.Outbox.Migrate]'s.
func Migrate(ctx context.Context, db *sql.DB) error {
	for _, statement := range []string{
		"CREATE TABLE IF NOT EXISTS users (id VARCHAR(64) PRIMARY KEY, status VARCHAR(16) NOT NULL)",
		"CREATE TABLE IF NOT EXISTS api_keys (id VARCHAR(64) PRIMARY KEY, user_id VARCHAR(64) NOT NULL, revoked BOOLEAN NOT NULL, revocations INT NOT NULL)",
		"CREATE INDEX api_keys_of_user ON api_keys (user_id)",
	} {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("create the tables users and api_keys: %w", err)
		}
	}
	return nil
}

var (
	placeholder = regexp.MustCompile(`\$[0-9]`)
	excluded    = regexp.MustCompile(`excluded\.(\w+)`)
)

// text returns a statement as the database takes it. It is written for
// PostgreSQL.
func text(d sqltx.Dialect, statement string) string {
	if d == sqltx.SQLite { // there, a transaction is the only writer anyway
		statement = strings.ReplaceAll(statement, " FOR UPDATE", "")
	}
	if d == sqltx.MySQL {
		statement = strings.ReplaceAll(statement, "ON CONFLICT (id) DO UPDATE SET", "ON DUPLICATE KEY UPDATE")
		statement = excluded.ReplaceAllString(statement, "VALUES($1)")
	}
	if d != sqltx.Postgres {
		statement = placeholder.ReplaceAllString(statement, "?")
	}
	return statement
}
