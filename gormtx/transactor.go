package gormtx

import (
	"context"
	"database/sql"
	"fmt"

	"gorm.io/gorm"

	"github.com/onward-go/outbox/internal/sqlstore"
	"github.com/onward-go/outbox/internal/stdsql"
	"github.com/onward-go/outbox/persistence"
)

// tx is the handle that travels in the context.
type tx struct {
	*stdsql.Tx
	db *gorm.DB
}

var _ persistence.Tx = (*tx)(nil)

func begin(ctx context.Context, db *gorm.DB, pool *sql.DB, dialect *sqlstore.Dialect) (*tx, error) {
	t, err := stdsql.Begin(ctx, pool, dialect)
	if err != nil {
		return nil, err
	}
	statements := t.Statements().(gorm.ConnPool)
	// A user who turned on GORM's prepared statements has them here, too.
	if prepared, ok := db.ConnPool.(*gorm.PreparedStmtDB); ok && t.SQLTx() != nil {
		statements = &gorm.PreparedStmtTX{Tx: t.SQLTx(), PreparedStmtDB: prepared}
	}
	return &tx{Tx: t, db: session(ctx, db, &connPool{statements, t, pool})}, nil
}

// session returns a *gorm.DB like db, without its conditions, whose statements
// run through pool.
func session(ctx context.Context, db *gorm.DB, pool gorm.ConnPool) *gorm.DB {
	s := db.Session(&gorm.Session{NewDB: true, Context: ctx})
	s.Statement.ConnPool = pool
	return s
}

// connPool is what GORM takes for the transaction: it passes statements on and
// lets the transaction watch their errors.
type connPool struct {
	gorm.ConnPool
	watch *stdsql.Tx
	pool  *sql.DB
}

var (
	_ gorm.TxCommitter    = (*connPool)(nil) // so that GORM nests by savepoint
	_ gorm.GetDBConnector = (*connPool)(nil)
)

func (p *connPool) PrepareContext(ctx context.Context, query string) (*sql.Stmt, error) {
	if err := p.watch.Err(); err != nil {
		return nil, err
	}
	stmt, err := p.ConnPool.PrepareContext(ctx, query)
	p.watch.Watch(err)
	p.watch.Suspect() // its executions are not seen here
	return stmt, err
}

func (p *connPool) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	if err := p.watch.Err(); err != nil {
		return nil, err
	}
	result, err := p.ConnPool.ExecContext(ctx, query, args...)
	p.watch.Watch(err)
	return result, err
}

func (p *connPool) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if err := p.watch.Err(); err != nil {
		return nil, err
	}
	rows, err := p.ConnPool.QueryContext(ctx, query, args...)
	p.watch.Watch(err)
	p.watch.Suspect()
	return rows, err
}

// QueryRowContext cannot return an error of its own, so on a transaction that
// has ended it runs with a context that is cancelled with the cause.
func (p *connPool) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	if err := p.watch.Err(); err != nil {
		ended, cancel := context.WithCancelCause(ctx)
		cancel(err)
		return p.ConnPool.QueryRowContext(ended, query, args...)
	}
	row := p.ConnPool.QueryRowContext(ctx, query, args...)
	p.watch.Watch(row.Err())
	p.watch.Suspect()
	return row
}

// Commit refuses: a commit in the middle of Atomically would leave the rest
// without a transaction.
func (p *connPool) Commit() error {
	return fmt.Errorf("gormtx: commit: %w: Atomically ends the transaction, or whoever opened it", persistence.ErrInTransaction)
}

// Rollback refuses, for the same reason.
func (p *connPool) Rollback() error {
	return fmt.Errorf("gormtx: rollback: %w: return an error to Atomically, or roll back where it was opened", persistence.ErrInTransaction)
}

// GetDBConn lets db.DB() find the pool.
func (p *connPool) GetDBConn() (*sql.DB, error) { return p.pool, nil }
