// Package pgxtest puts pgxtx under the conformance suite.
package pgxtest

import (
	"context"
	"database/sql"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onward-go/outbox/internal/facetest"
	"github.com/onward-go/outbox/pgxtx"
)

// Face returns pgxtx over a pool. The suite itself asks the same database by db,
// which has as many connections.
func Face(pool *pgxpool.Pool, db *sql.DB, naming facetest.Naming) facetest.Face {
	const dialect = "postgres"
	return facetest.Face{
		Outbox:  pgxtx.New(pool, options(naming)...),
		Dialect: dialect,
		Pool:    db,
		Naming:  naming,
		Exec: func(ctx context.Context, query string, args ...any) error {
			_, err := pgxtx.Tx(ctx).Exec(ctx, facetest.Numbered(dialect, query), args...)
			return err
		},
		Ask: func(ctx context.Context, dest any, query string) error {
			return pgxtx.Tx(ctx).QueryRow(ctx, query).Scan(dest)
		},
	}
}

func options(n facetest.Naming) []pgxtx.Option {
	var opts []pgxtx.Option
	if n.Schema != "" {
		opts = append(opts, pgxtx.WithSchema(n.Schema))
	}
	if n.Prefix != "" {
		opts = append(opts, pgxtx.WithTablePrefix(n.Prefix))
	}
	return opts
}
