package stdsql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"sync"
)

// flight is a transaction like a *sql.Tx, that begins in the round trip of its first
// statement where that is an ExecContext with arguments. Otherwise there is a *sql.Tx
// underneath.
//
// What begins so is none to database/sql, for which its statements run on a connection.
// So what a *sql.Tx closes at its end is closed here.
type flight struct {
	pipeline Pipeline
	conn     *sql.Conn

	mu       sync.Mutex
	on       preparer // what statements run through; nil until the transaction has begun
	tx       *sql.Tx  // nil unless database/sql has begun it
	failed   error    // why there is none
	rows     *sql.Rows
	prepared []*sql.Stmt
}

// preparer is a *sql.Tx or a *sql.Conn.
type preparer interface {
	Statements
	PrepareContext(ctx context.Context, query string) (*sql.Stmt, error)
}

// ExecContext is that of *sql.Tx.
func (f *flight) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	on, result, err := f.execFirst(ctx, query, args)
	if on == nil {
		return result, err
	}
	return on.ExecContext(ctx, query, args...)
}

// execFirst runs a statement if the transaction can begin with it. Otherwise it returns
// what to run it through.
func (f *flight) execFirst(ctx context.Context, query string, args []any) (on preparer, result sql.Result, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.on != nil || f.failed != nil || !f.canBegin(args) {
		on, err = f.begun(ctx)
		return on, nil, err
	}
	var rows int64
	var begun bool
	rawErr := f.conn.Raw(func(driverConn any) error {
		rows, begun, err = f.pipeline.BeginWith(ctx, driverConn, query, args)
		return nil // what the error means for the connection is known to the driver
	})
	err = errors.Join(rawErr, err)
	if begun {
		f.on = f.conn
	} else {
		f.failed = fmt.Errorf("%w: its first statement has failed: %w", sql.ErrTxDone, err)
	}
	return nil, driver.RowsAffected(rows), err
}

func (f *flight) canBegin(args []any) (can bool) {
	named := slices.ContainsFunc(args, func(arg any) bool {
		_, is := arg.(sql.NamedArg) // database/sql unpacks it
		return is
	})
	if named {
		return false
	}
	err := f.conn.Raw(func(driverConn any) error {
		can = f.pipeline.CanBegin(driverConn, args)
		return nil
	})
	return can && err == nil
}

// begun begins the transaction, unless it has begun.
func (f *flight) begun(ctx context.Context) (preparer, error) {
	if f.on != nil || f.failed != nil {
		return f.on, f.failed
	}
	f.tx, f.failed = beginTx(ctx, f.conn)
	if f.failed == nil {
		f.on = f.tx
	}
	return f.on, f.failed
}

// QueryContext is that of *sql.Tx.
func (f *flight) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	on, err := f.begun(ctx)
	if err != nil {
		return nil, err
	}
	rows, err := on.QueryContext(ctx, query, args...)
	if err == nil && f.tx == nil {
		f.rows = rows // those before are closed, or there could be no others
	}
	return rows, err
}

// QueryRowContext is that of *sql.Tx.
func (f *flight) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	f.mu.Lock()
	_, err := f.begun(ctx)
	tx := f.tx
	f.mu.Unlock()
	if err == nil && tx != nil {
		return tx.QueryRowContext(ctx, query, args...)
	}
	rows, err := f.QueryContext(ctx, query, args...)
	return rowOf(ctx, rows, err)
}

// PrepareContext is that of *sql.Tx.
func (f *flight) PrepareContext(ctx context.Context, query string) (*sql.Stmt, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	on, err := f.begun(ctx)
	if err != nil {
		return nil, err
	}
	stmt, err := on.PrepareContext(ctx, query)
	if err == nil && f.tx == nil {
		f.prepared = append(f.prepared, stmt)
	}
	return stmt, err
}

// StmtContext is that of *sql.Tx, for which there has to be one. PostgreSQL takes a
// second BEGIN with a warning.
func (f *flight) StmtContext(ctx context.Context, stmt *sql.Stmt) *sql.Stmt {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.tx == nil && f.failed == nil {
		f.on = nil
		if _, err := f.begun(ctx); err != nil {
			return refusedStmt()
		}
	}
	if f.failed != nil {
		return refusedStmt()
	}
	return f.tx.StmtContext(ctx, stmt)
}

// Commit is that of *sql.Tx. Where nothing has begun there is nothing to commit.
func (f *flight) Commit() error {
	return f.end((*sql.Tx).Commit, f.pipeline.Commit)
}

// Rollback is that of *sql.Tx. A connection on which it fails is discarded.
func (f *flight) Rollback() error {
	err := f.end((*sql.Tx).Rollback, f.pipeline.Rollback)
	switch {
	case errors.Is(err, sql.ErrTxDone): // nothing has begun
		return nil
	case err != nil:
		discard(f.conn)
	}
	return err
}

func (f *flight) end(begunThere func(*sql.Tx) error, begunHere func(context.Context, any) error) (err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.rows != nil {
		_ = f.rows.Close() // whoever left them open does not care
	}
	for _, stmt := range f.prepared {
		_ = stmt.Close() // as *sql.Tx does it
	}
	switch {
	case f.tx != nil:
		return begunThere(f.tx)
	case f.on == nil:
		return f.failed
	}
	rawErr := f.conn.Raw(func(driverConn any) error {
		err = begunHere(context.Background(), driverConn)
		return nil
	})
	return errors.Join(rawErr, err)
}
