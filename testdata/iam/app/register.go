package app

import (
	"context"
	"fmt"

	"github.com/onward-go/outbox/testdata/iam/domain"
)

// Register creates an active user with live API keys.
func (a *App) Register(ctx context.Context, userID string, keyIDs ...string) error {
	err := a.ports.Transactor.Atomically(ctx, func(ctx context.Context) error {
		if err := a.ports.Users.Save(ctx, domain.NewUser(userID)); err != nil {
			return err
		}
		for _, id := range keyIDs {
			if err := a.ports.APIKeys.Save(ctx, domain.NewAPIKey(id, userID)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("register user %q: %w", userID, err)
	}
	return nil
}
