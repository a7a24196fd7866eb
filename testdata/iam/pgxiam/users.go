package pgxiam

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onward-go/outbox/pgxtx"
	"github.com/onward-go/outbox/testdata/iam/domain"
)

// users implements domain.Users.
type users struct{ pool *pgxpool.Pool }

func (u users) Find(ctx context.Context, id string) (domain.User, error) {
	return u.find(ctx, pgxtx.DB(ctx, u.pool), "SELECT id, status FROM users WHERE id = $1", id)
}

func (u users) FindForUpdate(ctx context.Context, id string) (domain.User, error) {
	return u.find(ctx, pgxtx.Tx(ctx), "SELECT id, status FROM users WHERE id = $1 FOR UPDATE", id)
}

func (u users) find(ctx context.Context, db pgxtx.DBTX, query, id string) (domain.User, error) {
	var user domain.User
	err := db.QueryRow(ctx, query, id).Scan(&user.ID, &user.Status)
	if errors.Is(err, pgx.ErrNoRows) {
		err = domain.ErrNotFound
	}
	if err != nil {
		return domain.User{}, fmt.Errorf("user %q: %w", id, err)
	}
	return user, nil
}

func (u users) Save(ctx context.Context, changed domain.User) error {
	const upsert = "INSERT INTO users (id, status) VALUES ($1, $2) ON CONFLICT (id) DO UPDATE SET status = excluded.status"
	if _, err := pgxtx.Tx(ctx).Exec(ctx, upsert, changed.ID, changed.Status); err != nil {
		return fmt.Errorf("save user %q: %w", changed.ID, err)
	}
	return nil
}
