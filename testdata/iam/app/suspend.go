package app

import (
	"context"
	"fmt"

	"github.com/onward-go/outbox/events"
)

// UserSuspended is the type of the event that says that a user was suspended.
const UserSuspended = "iam.v1.UserSuspended"

// UserAggregate is the aggregate type of the events of a user.
const UserAggregate = "User"

// Suspend suspends a user and publishes UserSuspended: both or neither.
func (a *App) Suspend(ctx context.Context, userID string) error {
	err := a.ports.Transactor.Atomically(ctx, func(ctx context.Context) error {
		user, err := a.ports.Users.FindForUpdate(ctx, userID)
		if err != nil {
			return err
		}
		if err := user.Suspend(); err != nil {
			return err
		}
		// Write the aggregate, then publish: whoever else changes this user
		// waits at the row, so the user's events are stamped in the order of
		// the commits.
		if err := a.ports.Users.Save(ctx, user); err != nil {
			return err
		}
		return a.ports.Publisher.Publish(ctx, events.Event{
			Type:          UserSuspended,
			AggregateType: UserAggregate,
			AggregateID:   user.ID,
			Payload:       []byte(user.ID),
		})
	})
	if err != nil {
		return fmt.Errorf("suspend user %q: %w", userID, err)
	}
	return nil
}
