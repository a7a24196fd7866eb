// Package domain is the core of the example: users, their API keys, and what
// has to hold for them. It imports neither the outbox nor a database.
//
// The repositories are ports. Each method takes part in the transaction that
// its context carries, whoever put it there.
package domain

import "errors"

// ErrNotFound says that there is no such user.
var ErrNotFound = errors.New("not found")
