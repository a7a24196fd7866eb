package domain

import (
	"context"
	"errors"
)

// ErrAlreadySuspended says that a user who is suspended cannot be suspended
// again.
var ErrAlreadySuspended = errors.New("already suspended")

// Status says whether a user may work.
type Status string

// A user is one of these.
const (
	Active    Status = "active"
	Suspended Status = "suspended"
)

// User is an aggregate.
type User struct {
	ID     string
	Status Status
}

// NewUser returns an active user.
func NewUser(id string) User { return User{ID: id, Status: Active} }

// Suspend suspends the user.
func (u *User) Suspend() error {
	if u.Status == Suspended {
		return ErrAlreadySuspended
	}
	u.Status = Suspended
	return nil
}

// Users is the repository of users.
type Users interface {
	// Find returns a user, or ErrNotFound.
	Find(ctx context.Context, id string) (User, error)

	// FindForUpdate is Find for a user who is going to be saved: until the
	// transaction ends, nobody else gets past it. It needs a transaction.
	FindForUpdate(ctx context.Context, id string) (User, error)

	// Save writes the user, who may be new. It needs a transaction.
	Save(ctx context.Context, user User) error
}
