// Package pgxiam wires the example to the outbox on pgx.
//
// Its tables are users and api_keys.
package pgxiam

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/pgxtx"
	"github.com/onward-go/outbox/testdata/iam/app"
)

// Wire returns the application's ports over an outbox and the database that it
// is in.
func Wire(pool *pgxpool.Pool, outbox *pgxtx.Outbox) app.Ports {
	return app.Ports{
		Transactor: outbox,
		Publisher:  events.NewPublisher(outbox),
		Users:      users{pool},
		APIKeys:    apiKeys{pool},
	}
}

// Migrate creates the example's own tables. Those of the outbox are
// [pgxtx.Outbox.Migrate]'s.
func Migrate(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := pool.Exec(ctx, `
CREATE TABLE IF NOT EXISTS users (id text PRIMARY KEY, status text NOT NULL);
CREATE TABLE IF NOT EXISTS api_keys (id text PRIMARY KEY, user_id text NOT NULL, revoked boolean NOT NULL, revocations int NOT NULL);
CREATE INDEX IF NOT EXISTS api_keys_of_user ON api_keys (user_id)`)
	if err != nil {
		return fmt.Errorf("create the tables users and api_keys: %w", err)
	}
	return nil
}
