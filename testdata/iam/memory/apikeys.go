package memory

import (
	"context"
	"slices"
	"strings"

	"github.com/onward-go/outbox/memstore"
	"github.com/onward-go/outbox/testdata/iam/domain"
)

// apiKeys implements domain.APIKeys.
type apiKeys struct {
	table *memstore.Table[string, domain.APIKey]
}

func (k apiKeys) OfUser(ctx context.Context, userID string) ([]domain.APIKey, error) {
	var keys []domain.APIKey
	for _, key := range k.table.All(ctx) {
		if key.UserID == userID {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, func(a, b domain.APIKey) int { return strings.Compare(a.ID, b.ID) })
	return keys, nil
}

// OfUserForUpdate locks each key by a write, and returns what it is then: it
// may have changed while the lock was waited for.
func (k apiKeys) OfUserForUpdate(ctx context.Context, userID string) ([]domain.APIKey, error) {
	keys, err := k.OfUser(ctx, userID)
	if err != nil {
		return nil, err
	}
	for i, key := range keys {
		err := k.table.Update(ctx, key.ID, func(locked domain.APIKey, _ bool) (domain.APIKey, error) {
			keys[i] = locked
			return locked, nil
		})
		if err != nil {
			return nil, err
		}
	}
	return keys, nil
}

func (k apiKeys) Save(ctx context.Context, key domain.APIKey) error {
	return k.table.Put(ctx, key.ID, key)
}
