// Package memory wires the example to the outbox in memory.
package memory

import (
	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/memstore"
	"github.com/onward-go/outbox/testdata/iam/app"
	"github.com/onward-go/outbox/testdata/iam/domain"
)

// Wire returns the application's ports over a store. Each call makes tables of
// its own.
func Wire(store *memstore.Store) app.Ports {
	return app.Ports{
		Transactor: store,
		Publisher:  events.NewPublisher(store),
		Users:      users{memstore.NewTable[string, domain.User](store)},
		APIKeys:    apiKeys{memstore.NewTable[string, domain.APIKey](store)},
	}
}
