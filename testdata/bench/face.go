package main

import (
	"context"
	"database/sql"
	"regexp"

	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // sqltx's driver
	"gorm.io/gorm"

	"github.com/onward-go/outbox/gormtx"
	"github.com/onward-go/outbox/persistence"
	"github.com/onward-go/outbox/pgxtx"
	"github.com/onward-go/outbox/sqltx"
	"github.com/onward-go/outbox/sqltx/sqlpgx"
)

// face is this library over one of the ways to a database.
type face struct {
	name string
	// open opens the benchmark's outbox with so many connections, and says how a
	// transaction with a bare INSERT is made in this way.
	open func(b *benchmark, connections int) (opened, error)
	// exec runs a statement in the transaction of ctx.
	exec func(ctx context.Context, query string, args ...any) error
}

// stores are what publisher and dispatcher need.
type stores interface {
	persistence.Chainer
	persistence.Transactor
	persistence.OutboxStore
	persistence.OutboxCursorStore
	persistence.IdempotencyStore
}

type opened struct {
	stores
	bareInsert operation
	close      func()
}

var (
	gormFace      = gormFaceWith("gormtx")
	gormFaceAsync = gormFaceWith("gormtx-async", gormtx.WithAsynchronousCommit())
)

func gormFaceWith(name string, options ...gormtx.Option) face {
	return face{
		name: name,
		open: func(b *benchmark, _ int) (opened, error) {
			o := gormtx.New(b.db, append(options, gormtx.WithTablePrefix(b.prefix))...)
			return opened{o, b.throughGORM(func() []statement {
				return []statement{b.update(anyCounter()), b.insert()}
			}), func() {}}, nil
		},
		exec: func(ctx context.Context, query string, args ...any) error {
			return gormtx.Tx(ctx).Exec(questionMarks(query), args...).Error
		},
	}
}

var sqlFace = face{
	name: "sqltx",
	open: func(b *benchmark, connections int) (opened, error) {
		pool, err := sql.Open(b.sqlDriver, b.dsn)
		if err != nil {
			return opened{}, err
		}
		pool.SetMaxIdleConns(connections + 3)
		bare := func(ctx context.Context) (int, error) {
			return 1, transaction(ctx, pool, b.update(anyCounter()), b.insert())
		}
		return opened{sqltx.New(pool, b.dialect, sqltx.WithTablePrefix(b.prefix), sqlpgx.Pipelined()), bare, func() { _ = pool.Close() }}, nil // the process ends
	},
	exec: func(ctx context.Context, query string, args ...any) error {
		_, err := sqltx.Tx(ctx).ExecContext(ctx, query, args...)
		return err
	},
}

var pgxFace = face{
	name: "pgxtx",
	open: func(b *benchmark, connections int) (opened, error) {
		config, err := pgxpool.ParseConfig(b.dsn)
		if err != nil {
			return opened{}, err
		}
		config.MaxConns = int32(connections + 3)
		pool, err := pgxpool.NewWithConfig(context.Background(), config)
		if err != nil {
			return opened{}, err
		}
		return opened{pgxtx.New(pool, pgxtx.WithTablePrefix(b.prefix)), b.bareInsertByHand, pool.Close}, nil
	},
	exec: func(ctx context.Context, query string, args ...any) error {
		_, err := pgxtx.Tx(ctx).Exec(ctx, query, args...)
		return err
	},
}

var dollars = regexp.MustCompile(`\$[0-9]+`)

// questionMarks is how GORM wants its arguments.
func questionMarks(query string) string { return dollars.ReplaceAllString(query, "?") }

// throughGORM is a transaction through GORM without any library.
func (b *benchmark) throughGORM(statements func() []statement) operation {
	return func(ctx context.Context) (int, error) {
		return 1, b.db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
			for _, s := range statements() {
				if err := tx.Exec(questionMarks(s.query), s.args...).Error; err != nil {
					return err
				}
			}
			return nil
		})
	}
}
