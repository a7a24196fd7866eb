// Package gormiam wires the example to the outbox on GORM.
//
// Its tables are users and api_keys, with the prefix of the database's naming
// strategy.
package gormiam

import (
	"context"
	"fmt"

	"gorm.io/gorm"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/gormtx"
	"github.com/onward-go/outbox/testdata/iam/app"
)

// Wire returns the application's ports over an outbox and the database that it
// is in.
func Wire(db *gorm.DB, outbox *gormtx.Outbox) app.Ports {
	return app.Ports{
		Transactor: outbox,
		Publisher:  events.NewPublisher(outbox),
		Users:      users{db},
		APIKeys:    apiKeys{db},
	}
}

// Migrate creates the example's own tables. Those of the outbox are
// [gormtx.Outbox.Migrate]'s.
func Migrate(ctx context.Context, db *gorm.DB) error {
	if err := db.WithContext(ctx).AutoMigrate(&user{}, &apiKey{}); err != nil {
		return fmt.Errorf("create the tables users and api_keys: %w", err)
	}
	return nil
}
