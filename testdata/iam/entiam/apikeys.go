package entiam

import (
	"context"
	"fmt"

	"github.com/onward-go/outbox/testdata/iam/domain"
	"github.com/onward-go/outbox/testdata/iam/entiam/ent"
	"github.com/onward-go/outbox/testdata/iam/entiam/ent/apikey"
)

// apiKeys implements domain.APIKeys.
type apiKeys struct{ database }

func (k apiKeys) OfUser(ctx context.Context, userID string) ([]domain.APIKey, error) {
	return k.find(ctx, k.db(ctx).APIKey.Query(), userID)
}

func (k apiKeys) OfUserForUpdate(ctx context.Context, userID string) ([]domain.APIKey, error) {
	query := k.tx(ctx).APIKey.Query()
	if k.locks() {
		query.ForUpdate()
	}
	return k.find(ctx, query, userID)
}

func (apiKeys) find(ctx context.Context, query *ent.APIKeyQuery, userID string) ([]domain.APIKey, error) {
	rows, err := query.Where(apikey.UserID(userID)).Order(apikey.ByID()).All(ctx)
	if err != nil {
		return nil, fmt.Errorf("API keys of user %q: %w", userID, err)
	}
	keys := make([]domain.APIKey, len(rows))
	for i, row := range rows {
		keys[i] = domain.APIKey{ID: row.ID, UserID: row.UserID, Revoked: row.Revoked, Revocations: row.Revocations}
	}
	return keys, nil
}

func (k apiKeys) Save(ctx context.Context, changed domain.APIKey) error {
	err := k.tx(ctx).APIKey.Create().SetID(changed.ID).SetUserID(changed.UserID).
		SetRevoked(changed.Revoked).SetRevocations(changed.Revocations).
		OnConflictColumns(apikey.FieldID).UpdateNewValues().Exec(ctx)
	if err != nil {
		return fmt.Errorf("save API key %q: %w", changed.ID, err)
	}
	return nil
}
