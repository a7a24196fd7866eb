package sqliam

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/onward-go/outbox/sqltx"
	"github.com/onward-go/outbox/testdata/iam/domain"
)

// users implements domain.Users.
type users struct {
	db      *sql.DB
	dialect sqltx.Dialect
}

func (u users) Find(ctx context.Context, id string) (domain.User, error) {
	return u.find(ctx, sqltx.DB(ctx, u.db), "SELECT id, status FROM users WHERE id = $1", id)
}

func (u users) FindForUpdate(ctx context.Context, id string) (domain.User, error) {
	return u.find(ctx, sqltx.Tx(ctx), "SELECT id, status FROM users WHERE id = $1 FOR UPDATE", id)
}

func (u users) find(ctx context.Context, db sqltx.DBTX, query, id string) (domain.User, error) {
	var user domain.User
	err := db.QueryRowContext(ctx, text(u.dialect, query), id).Scan(&user.ID, &user.Status)
	if errors.Is(err, sql.ErrNoRows) {
		err = domain.ErrNotFound
	}
	if err != nil {
		return domain.User{}, fmt.Errorf("user %q: %w", id, err)
	}
	return user, nil
}

func (u users) Save(ctx context.Context, changed domain.User) error {
	const upsert = "INSERT INTO users (id, status) VALUES ($1, $2) ON CONFLICT (id) DO UPDATE SET status = excluded.status"
	if _, err := sqltx.Tx(ctx).ExecContext(ctx, text(u.dialect, upsert), changed.ID, string(changed.Status)); err != nil {
		return fmt.Errorf("save user %q: %w", changed.ID, err)
	}
	return nil
}
