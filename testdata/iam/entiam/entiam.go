// Package entiam wires the example to the outbox on ent, through package sqltx.
//
// Its tables are users and api_keys. Package ent, which is generated, reads the
// outbox table, too.
package entiam

import (
	"context"
	"fmt"
	"sync"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/sqltx"
	"github.com/onward-go/outbox/testdata/iam/app"
	"github.com/onward-go/outbox/testdata/iam/entiam/ent"
)

//go:generate go tool ent generate --target ./ent --feature sql/execquery,sql/lock,sql/upsert ./schema

// Wire returns the application's ports over an outbox and a client of the
// database that it is in, of ent's dialect of that name. On SQLite the client
// needs _txlock=immediate in its DSN.
func Wire(client *ent.Client, dialect string, outbox *sqltx.Outbox) app.Ports {
	d := database{client, dialect}
	return app.Ports{
		Transactor: transactor{client, outbox},
		Publisher:  events.NewPublisher(outbox),
		Users:      users{d},
		APIKeys:    apiKeys{d},
	}
}

// Ent's migrations write to the description of the tables, which all clients
// share.
var migrating sync.Mutex

// Migrate creates the example's own tables. Those of the outbox are
// [sqltx.Outbox.Migrate]'s.
func Migrate(ctx context.Context, client *ent.Client) error {
	migrating.Lock()
	defer migrating.Unlock()
	if err := client.Schema.Create(ctx); err != nil {
		return fmt.Errorf("create the tables users and api_keys: %w", err)
	}
	return nil
}
