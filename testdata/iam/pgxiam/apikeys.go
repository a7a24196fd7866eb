package pgxiam

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onward-go/outbox/pgxtx"
	"github.com/onward-go/outbox/testdata/iam/domain"
)

// apiKeys implements domain.APIKeys.
type apiKeys struct{ pool *pgxpool.Pool }

const ofUser = "SELECT id, user_id, revoked, revocations FROM api_keys WHERE user_id = $1 ORDER BY id"

func (k apiKeys) OfUser(ctx context.Context, userID string) ([]domain.APIKey, error) {
	return k.find(ctx, pgxtx.DB(ctx, k.pool), ofUser, userID)
}

func (k apiKeys) OfUserForUpdate(ctx context.Context, userID string) ([]domain.APIKey, error) {
	return k.find(ctx, pgxtx.Tx(ctx), ofUser+" FOR UPDATE", userID)
}

func (k apiKeys) find(ctx context.Context, db pgxtx.DBTX, query, userID string) ([]domain.APIKey, error) {
	rows, err := db.Query(ctx, query, userID)
	if err != nil {
		return nil, fmt.Errorf("API keys of user %q: %w", userID, err)
	}
	keys, err := pgx.CollectRows(rows, pgx.RowToStructByPos[domain.APIKey])
	if err != nil {
		return nil, fmt.Errorf("API keys of user %q: %w", userID, err)
	}
	return keys, nil
}

func (k apiKeys) Save(ctx context.Context, changed domain.APIKey) error {
	const upsert = "INSERT INTO api_keys (id, user_id, revoked, revocations) VALUES ($1, $2, $3, $4) " +
		"ON CONFLICT (id) DO UPDATE SET user_id = excluded.user_id, revoked = excluded.revoked, revocations = excluded.revocations"
	_, err := pgxtx.Tx(ctx).Exec(ctx, upsert, changed.ID, changed.UserID, changed.Revoked, changed.Revocations)
	if err != nil {
		return fmt.Errorf("save API key %q: %w", changed.ID, err)
	}
	return nil
}
