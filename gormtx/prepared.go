package gormtx

import (
	"context"
	"database/sql"

	"gorm.io/gorm"

	"github.com/onward-go/outbox/internal/sqlstore"
	"github.com/onward-go/outbox/internal/stdsql"
)

// preparing runs statements through GORM's cache of prepared ones, but for those that
// gain nothing by it, or cannot be prepared, as SAVEPOINT on MySQL. GORM passes its cache
// by for a savepoint, too, where it sees the cache.
type preparing struct {
	gorm.Tx         // GORM's
	plain   gorm.Tx // what is under it
}

// uncached lets statements pass GORM's caches by where they have to. A session that
// prepares, of a database that does, has two.
func uncached(pool stdsql.Statements) stdsql.Statements {
	cached, ok := pool.(*gorm.PreparedStmtTX)
	if !ok {
		return pool
	}
	plain := cached.Tx
	for {
		inner, ok := plain.(*gorm.PreparedStmtTX)
		if !ok {
			return preparing{cached, plain}
		}
		plain = inner.Tx
	}
}

// ExecContext is that of *sql.Tx.
func (p preparing) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	if len(args) == 0 {
		return p.plain.ExecContext(ctx, query)
	}
	result, err := p.Tx.ExecContext(ctx, query, args...)
	if sqlstore.CannotPrepare(err) { // so it has not run
		return p.plain.ExecContext(ctx, query, args...)
	}
	return result, err
}

// QueryContext is that of *sql.Tx.
func (p preparing) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	rows, err := p.Tx.QueryContext(ctx, query, args...)
	if sqlstore.CannotPrepare(err) {
		return p.plain.QueryContext(ctx, query, args...)
	}
	return rows, err
}

// QueryRowContext is that of *sql.Tx. GORM's makes a row that panics of a statement that
// cannot be prepared.
func (p preparing) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	return p.plain.QueryRowContext(ctx, query, args...)
}
