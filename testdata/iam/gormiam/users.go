package gormiam

import (
	"context"
	"errors"
	"fmt"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"github.com/onward-go/outbox/gormtx"
	"github.com/onward-go/outbox/testdata/iam/domain"
)

// user is a row of the table users.
type user struct {
	ID     string        `gorm:"primaryKey;size:64"`
	Status domain.Status `gorm:"size:16;not null"`
}

// forUpdate locks rows. SQLite has no such clause and GORM leaves it out:
// there, a transaction is the only writer anyway.
var forUpdate = clause.Locking{Strength: clause.LockingStrengthUpdate}

// upsert is one statement for new rows and old ones.
var upsert = clause.OnConflict{UpdateAll: true}

// users implements domain.Users.
type users struct{ db *gorm.DB }

func (u users) Find(ctx context.Context, id string) (domain.User, error) {
	return find(gormtx.DB(ctx, u.db), id)
}

func (u users) FindForUpdate(ctx context.Context, id string) (domain.User, error) {
	return find(gormtx.Tx(ctx).Clauses(forUpdate), id)
}

func find(db *gorm.DB, id string) (domain.User, error) {
	var row user
	err := db.Take(&row, "id = ?", id).Error
	if errors.Is(err, gorm.ErrRecordNotFound) {
		err = domain.ErrNotFound
	}
	if err != nil {
		return domain.User{}, fmt.Errorf("user %q: %w", id, err)
	}
	return domain.User(row), nil
}

func (u users) Save(ctx context.Context, changed domain.User) error {
	row := user(changed)
	if err := gormtx.Tx(ctx).Clauses(upsert).Create(&row).Error; err != nil {
		return fmt.Errorf("save user %q: %w", changed.ID, err)
	}
	return nil
}
