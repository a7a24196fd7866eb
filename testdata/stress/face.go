package main

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"
	"gorm.io/gorm"

	"github.com/onward-go/outbox/gormtx"
	"github.com/onward-go/outbox/internal/facetest"
	"github.com/onward-go/outbox/internal/pgxtest"
	"github.com/onward-go/outbox/persistence"
	"github.com/onward-go/outbox/pgxtx"
	"github.com/onward-go/outbox/sqltx"
	"github.com/onward-go/outbox/sqltx/sqlpgx"
)

// face is a way to the outbox, and to the application's tables in its transactions.
type face struct {
	outbox outbox
	// exec runs a statement with placeholders as GORM has them.
	exec func(ctx context.Context, query string, args ...any) error
	// number reads one.
	number func(ctx context.Context, query string, args ...any) (int, error)
	close  func()
}

type outbox interface {
	persistence.Transactor
	persistence.Chainer
	persistence.FaultJudge
	persistence.TransactionLimit
	persistence.OutboxStore
	persistence.OutboxCursorStore
	persistence.IdempotencyStore
	Migrate(context.Context) error
}

const gormFace = "gormtx"

// faces open the ways to the outbox of a database, by name.
var faces = map[string]func(db *gorm.DB, prefix string) (face, error){
	gormFace: func(db *gorm.DB, prefix string) (face, error) {
		return face{
			outbox: gormtx.New(db, gormtx.WithTablePrefix(prefix)),
			exec: func(ctx context.Context, query string, args ...any) error {
				return gormtx.Tx(ctx).Exec(query, args...).Error
			},
			number: func(ctx context.Context, query string, args ...any) (n int, err error) {
				err = gormtx.Tx(ctx).Raw(query, args...).Scan(&n).Error
				return n, err
			},
			close: func() {},
		}, nil
	},
	"sqltx": func(db *gorm.DB, prefix string) (face, error) {
		pool, err := db.DB()
		if err != nil {
			return face{}, err
		}
		dialect := db.Name()
		return face{
			outbox: sqltx.New(pool, sqltx.Dialect(dialect), sqltx.WithTablePrefix(prefix), sqlpgx.Pipelined()),
			exec: func(ctx context.Context, query string, args ...any) error {
				_, err := sqltx.Tx(ctx).ExecContext(ctx, facetest.Numbered(dialect, query), args...)
				return err
			},
			number: func(ctx context.Context, query string, args ...any) (n int, err error) {
				err = sqltx.Tx(ctx).QueryRowContext(ctx, facetest.Numbered(dialect, query), args...).Scan(&n)
				return n, err
			},
			close: func() {},
		}, nil
	},
	"pgxtx": func(db *gorm.DB, prefix string) (face, error) {
		pool, err := pgxPool(db)
		if err != nil {
			return face{}, err
		}
		return face{
			outbox: pgxtx.New(pool, pgxtx.WithTablePrefix(prefix)),
			exec: func(ctx context.Context, query string, args ...any) error {
				_, err := pgxtx.Tx(ctx).Exec(ctx, facetest.Numbered("postgres", query), args...)
				return err
			},
			number: func(ctx context.Context, query string, args ...any) (n int, err error) {
				err = pgxtx.Tx(ctx).QueryRow(ctx, facetest.Numbered("postgres", query), args...).Scan(&n)
				return n, err
			},
			close: pool.Close,
		}, nil
	},
}

func openFace(name string, db *gorm.DB, prefix string) (face, error) {
	if name == "" {
		name = gormFace
	}
	open, ok := faces[name]
	if !ok {
		return face{}, fmt.Errorf("no face %q", name)
	}
	return open(db, prefix)
}

// pgxPool returns a pool that connects as db does, and has as many connections.
func pgxPool(db *gorm.DB) (*pgxpool.Pool, error) {
	ctx := context.Background()
	pool, err := db.DB()
	if err != nil {
		return nil, err
	}
	config, err := pgxtest.Config(ctx, pool)
	if err != nil {
		return nil, err
	}
	return pgxpool.NewWithConfig(ctx, config)
}
