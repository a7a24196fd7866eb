// Package sqltest puts sqltx under the conformance suite, on any database that
// it supports.
package sqltest

import (
	"context"
	"database/sql"

	"github.com/onward-go/outbox/internal/facetest"
	"github.com/onward-go/outbox/sqltx"
)

// Face returns sqltx over a pool, with more options than those of the naming.
func Face(db *sql.DB, dialect string, naming facetest.Naming, more ...sqltx.Option) facetest.Face {
	return facetest.Face{
		Outbox:  sqltx.New(db, sqltx.Dialect(dialect), append(options(naming), more...)...),
		Dialect: dialect,
		Pool:    db,
		Naming:  naming,
		Exec: func(ctx context.Context, query string, args ...any) error {
			_, err := sqltx.Tx(ctx).ExecContext(ctx, facetest.Numbered(dialect, query), args...)
			return err
		},
		Ask: func(ctx context.Context, dest any, query string) error {
			return sqltx.Tx(ctx).QueryRowContext(ctx, query).Scan(dest)
		},
	}
}

func options(n facetest.Naming) []sqltx.Option {
	var opts []sqltx.Option
	if n.Schema != "" {
		opts = append(opts, sqltx.WithSchema(n.Schema))
	}
	if n.Prefix != "" {
		opts = append(opts, sqltx.WithTablePrefix(n.Prefix))
	}
	return opts
}
