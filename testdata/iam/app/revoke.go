package app

import (
	"context"
	"fmt"

	"github.com/onward-go/outbox/events"
)

// RevokeKeysHandler is the name of the handler RevokeKeys. Markers carry it, so
// it must not change.
const RevokeKeysHandler = "revoke-api-keys"

// RevokeKeys handles UserSuspended: it revokes the user's API keys, in the
// transaction that the dispatcher began for it. The event says which user; what
// the user has by now is read here.
func (a *App) RevokeKeys(ctx context.Context, evt events.Event) error {
	if err := a.revokeKeys(ctx, evt.AggregateID); err != nil {
		return fmt.Errorf("revoke the API keys of user %q: %w", evt.AggregateID, err)
	}
	return nil
}

func (a *App) revokeKeys(ctx context.Context, userID string) error {
	keys, err := a.ports.APIKeys.OfUserForUpdate(ctx, userID)
	if err != nil {
		return err
	}
	for _, key := range keys {
		key.Revoke()
		if err := a.ports.APIKeys.Save(ctx, key); err != nil {
			return err
		}
	}
	return nil
}
