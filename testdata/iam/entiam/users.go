package entiam

import (
	"context"
	"fmt"

	"github.com/onward-go/outbox/testdata/iam/domain"
	"github.com/onward-go/outbox/testdata/iam/entiam/ent"
	"github.com/onward-go/outbox/testdata/iam/entiam/ent/user"
)

// users implements domain.Users.
type users struct{ database }

func (u users) Find(ctx context.Context, id string) (domain.User, error) {
	return u.find(ctx, u.db(ctx).User.Query(), id)
}

func (u users) FindForUpdate(ctx context.Context, id string) (domain.User, error) {
	query := u.tx(ctx).User.Query()
	if u.locks() {
		query.ForUpdate()
	}
	return u.find(ctx, query, id)
}

func (users) find(ctx context.Context, query *ent.UserQuery, id string) (domain.User, error) {
	row, err := query.Where(user.ID(id)).Only(ctx)
	if ent.IsNotFound(err) {
		err = domain.ErrNotFound
	}
	if err != nil {
		return domain.User{}, fmt.Errorf("user %q: %w", id, err)
	}
	return domain.User{ID: row.ID, Status: row.Status}, nil
}

func (u users) Save(ctx context.Context, changed domain.User) error {
	err := u.tx(ctx).User.Create().SetID(changed.ID).SetStatus(changed.Status).
		OnConflictColumns(user.FieldID).UpdateNewValues().Exec(ctx)
	if err != nil {
		return fmt.Errorf("save user %q: %w", changed.ID, err)
	}
	return nil
}
