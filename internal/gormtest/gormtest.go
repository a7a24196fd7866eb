// Package gormtest puts gormtx under the conformance suite, on any database
// that it supports.
package gormtest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/onward-go/outbox/gormtx"
	"github.com/onward-go/outbox/internal/facetest"
	"github.com/onward-go/outbox/outboxtest"
)

// Face returns gormtx over a database.
func Face(t testing.TB, db *gorm.DB, naming Naming) facetest.Face {
	t.Helper()
	pool, err := db.DB()
	require.NoError(t, err)
	return facetest.Face{
		Outbox:  gormtx.New(db, naming.Options()...),
		Dialect: db.Name(),
		Pool:    pool,
		Naming:  facetest.Naming(naming),
		Exec: func(ctx context.Context, query string, args ...any) error {
			return gormtx.Tx(ctx).Exec(query, args...).Error
		},
		Ask: func(ctx context.Context, dest any, query string) error {
			return gormtx.Tx(ctx).Raw(query).Scan(dest).Error
		},
	}
}

// Prepare makes what [Backend] needs in an empty database.
func Prepare(t testing.TB, db *gorm.DB, naming Naming) {
	t.Helper()
	Face(t, db, naming).Prepare(t)
}

// Backend returns the outbox in a database that was prepared.
func Backend(t testing.TB, db *gorm.DB, naming Naming) outboxtest.Backend {
	t.Helper()
	return Face(t, db, naming).Backend(t)
}

// Partition cuts the first partition of the outbox, and of its markers, at each
// of the rising times.
func Partition(ctx context.Context, db *gorm.DB, naming Naming, ends ...time.Time) error {
	pool, err := db.DB()
	if err != nil {
		return err
	}
	return facetest.Partition(ctx, pool, db.Name(), facetest.Naming(naming), ends...)
}
