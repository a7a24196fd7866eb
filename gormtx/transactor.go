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
	var statements gorm.Tx = t.SQLTx()
	// A user who turned on GORM's prepared statements has them here, too.
	if prepared, ok := db.ConnPool.(*gorm.PreparedStmtDB); ok {
		statements = &gorm.PreparedStmtTX{Tx: t.SQLTx(), PreparedStmtDB: prepared}
	}
	return &tx{Tx: t, db: session(ctx, db, &connPool{statements, t, pool})}, nil
}

// session returns a *gorm.DB like db, without its conditions, whose statements
// run through pool, also in sessions that are made of it.
func session(ctx context.Context, db *gorm.DB, pool *connPool) *gorm.DB {
	s := db.Session(&gorm.Session{NewDB: true, Context: ctx})
	s.Statement.ConnPool = pool
	return s
}

// connPool is what GORM takes for the transaction: it passes statements on and
// lets the transaction watch their errors. It is a gorm.Tx, so that GORM nests
// by savepoint and prepares statements inside.
type connPool struct {
	gorm.Tx
	watch *stdsql.Tx
	pool  *sql.DB
}

var (
	_ gorm.Tx             = (*connPool)(nil)
	_ gorm.GetDBConnector = (*connPool)(nil)
)

// refuse returns why a statement must not run: the transaction has ended, or
// the statement would end it.
func (p *connPool) refuse(ctx context.Context, query string) error {
	if p.watch.Ends(query) {
		return fmt.Errorf("gormtx: %.100q: %w: it would end the transaction, which Atomically does, or whoever opened it", query, persistence.ErrInTransaction)
	}
	return p.watch.Check(ctx)
}

func (p *connPool) PrepareContext(ctx context.Context, query string) (*sql.Stmt, error) {
	if err := p.refuse(ctx, query); err != nil {
		return nil, err
	}
	stmt, err := p.Tx.PrepareContext(ctx, query)
	p.watch.Watch(err)
	p.watch.Unwatched()
	return stmt, err
}

// StmtContext hands out a statement that runs without us, as GORM does in a
// session that prepares. A statement that must not run has the error of a
// cancelled context, since none other can be given to it.
func (p *connPool) StmtContext(ctx context.Context, stmt *sql.Stmt) *sql.Stmt {
	p.watch.Unwatched()
	if p.watch.Check(ctx) != nil {
		cancelled, cancel := context.WithCancel(ctx)
		cancel()
		ctx = cancelled
	}
	return p.Tx.StmtContext(ctx, stmt)
}

func (p *connPool) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	if err := p.refuse(ctx, query); err != nil {
		return nil, err
	}
	result, err := p.Tx.ExecContext(ctx, query, args...)
	p.watch.Ran(query, false, err)
	return result, err
}

func (p *connPool) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if err := p.refuse(ctx, query); err != nil {
		return nil, err
	}
	rows, err := p.Tx.QueryContext(ctx, query, args...)
	p.watch.Ran(query, true, err)
	return rows, err
}

func (p *connPool) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	if err := p.refuse(ctx, query); err != nil {
		return refusingPool().QueryRowContext(ctx, query) // a Row can only carry the error of a query
	}
	row := p.Tx.QueryRowContext(ctx, query, args...)
	p.watch.Ran(query, true, row.Err())
	return row
}

// Commit refuses: a commit in the middle of Atomically would leave the rest
// without a transaction.
func (p *connPool) Commit() error { return p.refuse(context.Background(), "COMMIT") }

// Rollback refuses, for the same reason.
func (p *connPool) Rollback() error { return p.refuse(context.Background(), "ROLLBACK") }

// GetDBConn lets db.DB() find the pool.
func (p *connPool) GetDBConn() (*sql.DB, error) { return p.pool, nil }
