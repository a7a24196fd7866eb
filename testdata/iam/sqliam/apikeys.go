package sqliam

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/onward-go/outbox/sqltx"
	"github.com/onward-go/outbox/testdata/iam/domain"
)

// apiKeys implements domain.APIKeys.
type apiKeys struct {
	db      *sql.DB
	dialect sqltx.Dialect
}

const ofUser = "SELECT id, user_id, revoked, revocations FROM api_keys WHERE user_id = $1 ORDER BY id"

func (k apiKeys) OfUser(ctx context.Context, userID string) ([]domain.APIKey, error) {
	return k.find(ctx, sqltx.DB(ctx, k.db), ofUser, userID)
}

func (k apiKeys) OfUserForUpdate(ctx context.Context, userID string) ([]domain.APIKey, error) {
	return k.find(ctx, sqltx.Tx(ctx), ofUser+" FOR UPDATE", userID)
}

func (k apiKeys) find(ctx context.Context, db sqltx.DBTX, query, userID string) (keys []domain.APIKey, err error) {
	rows, err := db.QueryContext(ctx, text(k.dialect, query), userID)
	if err != nil {
		return nil, fmt.Errorf("API keys of user %q: %w", userID, err)
	}
	defer rows.Close()
	for rows.Next() {
		var key domain.APIKey
		if err := rows.Scan(&key.ID, &key.UserID, &key.Revoked, &key.Revocations); err != nil {
			return nil, fmt.Errorf("API keys of user %q: %w", userID, err)
		}
		keys = append(keys, key)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("API keys of user %q: %w", userID, err)
	}
	return keys, nil
}

func (k apiKeys) Save(ctx context.Context, changed domain.APIKey) error {
	const upsert = "INSERT INTO api_keys (id, user_id, revoked, revocations) VALUES ($1, $2, $3, $4) " +
		"ON CONFLICT (id) DO UPDATE SET user_id = excluded.user_id, revoked = excluded.revoked, revocations = excluded.revocations"
	_, err := sqltx.Tx(ctx).ExecContext(ctx, text(k.dialect, upsert), changed.ID, changed.UserID, changed.Revoked, changed.Revocations)
	if err != nil {
		return fmt.Errorf("save API key %q: %w", changed.ID, err)
	}
	return nil
}
