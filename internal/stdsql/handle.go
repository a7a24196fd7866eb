package stdsql

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/onward-go/outbox/persistence"
)

// Handle is what users run the statements of a transaction through: it passes
// them on and lets the transaction watch their errors. It refuses them once the
// transaction has ended, and those that would end it.
type Handle struct {
	watch      *Tx
	statements Statements
	refused    error // why there is no transaction
}

// NewHandle returns a handle on a transaction whose statements run through s.
func NewHandle(t *Tx, s Statements) *Handle { return &Handle{watch: t, statements: s} }

// Refusing returns a handle whose every statement fails.
func Refusing(err error) *Handle { return &Handle{refused: err} }

// Handle returns a handle on the transaction, also where another face opened
// it.
func (t *Tx) Handle() *Handle { return NewHandle(t, t.statements) }

// refuse returns why a statement must not run.
func (h *Handle) refuse(ctx context.Context, query string) error {
	if h.refused != nil {
		return h.refused
	}
	return h.watch.refuse(ctx, query)
}

// ExecContext is that of *sql.Tx.
func (h *Handle) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	if err := h.refuse(ctx, query); err != nil {
		return nil, err
	}
	result, err := h.statements.ExecContext(ctx, query, args...)
	h.watch.Ran(query, false, err)
	return result, err
}

// QueryContext is that of *sql.Tx.
func (h *Handle) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if err := h.refuse(ctx, query); err != nil {
		return nil, err
	}
	rows, err := h.statements.QueryContext(ctx, query, args...)
	h.watch.Ran(query, true, err)
	return rows, err
}

// QueryRowContext is that of *sql.Tx.
func (h *Handle) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	own, ok := h.statements.(interface {
		QueryRowContext(context.Context, string, ...any) *sql.Row
	})
	if !ok {
		rows, err := h.QueryContext(ctx, query, args...)
		return rowOf(ctx, rows, err)
	}
	if err := h.refuse(ctx, query); err != nil {
		return rowOf(ctx, nil, err)
	}
	row := own.QueryRowContext(ctx, query, args...)
	h.watch.Ran(query, true, row.Err())
	return row
}

// PrepareContext is that of *sql.Tx, where the transaction has it. What the
// statement does is not seen.
func (h *Handle) PrepareContext(ctx context.Context, query string) (*sql.Stmt, error) {
	if err := h.refuse(ctx, query); err != nil {
		return nil, err
	}
	own, ok := h.statements.(interface {
		PrepareContext(context.Context, string) (*sql.Stmt, error)
	})
	if !ok {
		return nil, fmt.Errorf("%w: a %T prepares no statements", persistence.ErrInvalid, h.statements)
	}
	stmt, err := own.PrepareContext(ctx, query)
	h.watch.watch(query, err)
	h.watch.Unwatched()
	return stmt, err
}

// StmtContext hands out a statement that runs without us, as GORM does in a
// session that prepares. One that must not run fails, whatever is done with it.
func (h *Handle) StmtContext(ctx context.Context, stmt *sql.Stmt) *sql.Stmt {
	own, ok := h.statements.(interface {
		StmtContext(context.Context, *sql.Stmt) *sql.Stmt
	})
	if !ok || h.refused != nil {
		return refusedStmt()
	}
	h.watch.Unwatched()
	if h.watch.ready(ctx) != nil {
		return refusedStmt()
	}
	return own.StmtContext(ctx, stmt)
}
