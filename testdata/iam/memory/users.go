package memory

import (
	"context"
	"fmt"

	"github.com/onward-go/outbox/memstore"
	"github.com/onward-go/outbox/testdata/iam/domain"
)

// users implements domain.Users.
type users struct {
	table *memstore.Table[string, domain.User]
}

func (u users) Find(ctx context.Context, id string) (domain.User, error) {
	user, ok := u.table.Get(ctx, id)
	if !ok {
		return user, missing(id)
	}
	return user, nil
}

// FindForUpdate writes what is there already, since a write takes the lock.
func (u users) FindForUpdate(ctx context.Context, id string) (found domain.User, err error) {
	err = u.table.Update(ctx, id, func(user domain.User, exists bool) (domain.User, error) {
		if !exists {
			return user, missing(id)
		}
		found = user
		return user, nil
	})
	return found, err
}

func (u users) Save(ctx context.Context, user domain.User) error {
	return u.table.Put(ctx, user.ID, user)
}

func missing(id string) error { return fmt.Errorf("user %q: %w", id, domain.ErrNotFound) }
