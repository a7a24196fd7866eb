package gormiam

import (
	"context"
	"fmt"

	"gorm.io/gorm"

	"github.com/onward-go/outbox/gormtx"
	"github.com/onward-go/outbox/testdata/iam/domain"
)

// apiKey is a row of the table api_keys.
type apiKey struct {
	ID          string `gorm:"primaryKey;size:64"`
	UserID      string `gorm:"size:64;not null;index"`
	Revoked     bool   `gorm:"not null"`
	Revocations int    `gorm:"not null"`
}

// apiKeys implements domain.APIKeys.
type apiKeys struct{ db *gorm.DB }

func (k apiKeys) OfUser(ctx context.Context, userID string) ([]domain.APIKey, error) {
	return ofUser(gormtx.DB(ctx, k.db), userID)
}

func (k apiKeys) OfUserForUpdate(ctx context.Context, userID string) ([]domain.APIKey, error) {
	return ofUser(gormtx.Tx(ctx).Clauses(forUpdate), userID)
}

func ofUser(db *gorm.DB, userID string) ([]domain.APIKey, error) {
	var rows []apiKey
	if err := db.Order("id").Find(&rows, "user_id = ?", userID).Error; err != nil {
		return nil, fmt.Errorf("API keys of user %q: %w", userID, err)
	}
	keys := make([]domain.APIKey, len(rows))
	for i, row := range rows {
		keys[i] = domain.APIKey(row)
	}
	return keys, nil
}

func (k apiKeys) Save(ctx context.Context, changed domain.APIKey) error {
	row := apiKey(changed)
	if err := gormtx.Tx(ctx).Clauses(upsert).Create(&row).Error; err != nil {
		return fmt.Errorf("save API key %q: %w", changed.ID, err)
	}
	return nil
}
