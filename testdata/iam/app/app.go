// Package app is the application layer of the example: its use cases and its
// event handlers. It knows the outbox by its publisher and transactor, and no
// database.
package app

import (
	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/persistence"
	"github.com/onward-go/outbox/testdata/iam/domain"
)

// Ports are what a wiring brings, all over one database.
type Ports struct {
	Transactor persistence.Transactor
	Publisher  *events.Publisher
	Users      domain.Users
	APIKeys    domain.APIKeys
}

// App runs the use cases. It is safe for concurrent use.
type App struct{ ports Ports }

// New returns the application over its ports.
func New(ports Ports) *App { return &App{ports} }

// Subscribe registers the application's event handlers.
func (a *App) Subscribe(d *events.Dispatcher) error {
	return d.Subscribe(UserSuspended, RevokeKeysHandler, a.RevokeKeys)
}
