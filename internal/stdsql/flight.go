package stdsql

import (
	"cmp"
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
// So what a *sql.Tx does for whoever leaves results open, or runs statements from
// several goroutines, is done here.
type flight struct {
	pipeline Pipeline
	conn     *sql.Conn
	ctx      context.Context // of the end

	// The lock is held while a statement runs, so that none comes after the end.
	mu     sync.Mutex
	on     Statements // what statements run through; nil until the transaction has begun
	tx     *sql.Tx    // nil unless database/sql has begun it
	failed error      // why there is none
	ended  bool
	last   opened
}

// opened is the result of a query on the connection. There are no two: a query that
// finds the connection busy fails.
type opened struct {
	rows   *sql.Rows
	cancel context.CancelFunc // what waits for the row to be read, or nil
}

func (o opened) close() {
	if o.rows != nil {
		_ = o.rows.Close() // whoever left it open does not care
	}
	if o.cancel != nil {
		o.cancel()
	}
}

// ExecContext is that of *sql.Tx.
func (f *flight) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.unbegun() && ctx.Err() == nil && f.canBegin(args) {
		return f.beginWith(ctx, query, args)
	}
	on, err := f.begun(ctx)
	if err != nil {
		return nil, err
	}
	return on.ExecContext(ctx, query, args...)
}

func (f *flight) unbegun() bool { return f.on == nil && f.failed == nil && !f.ended }

func (f *flight) canBegin(args []any) (can bool) {
	named := slices.ContainsFunc(args, func(arg any) bool {
		_, is := arg.(sql.NamedArg) // database/sql unpacks it
		return is
	})
	if named {
		return false
	}
	err := f.raw(func(driverConn any) error {
		can = f.pipeline.CanBegin(driverConn, args)
		return nil
	})
	return can && err == nil
}

func (f *flight) beginWith(ctx context.Context, query string, args []any) (sql.Result, error) {
	var rows int64
	var begun bool
	err := f.raw(func(driverConn any) (err error) {
		rows, begun, err = f.pipeline.BeginWith(ctx, driverConn, query, args)
		return err
	})
	if begun {
		f.on = f.conn
	} else {
		f.failed = fmt.Errorf("%w: its first statement has failed: %w", sql.ErrTxDone, err)
	}
	return driver.RowsAffected(rows), err
}

// begun begins the transaction, unless it has begun, and sees to it that the next
// statement finds nothing in its way.
func (f *flight) begun(ctx context.Context) (Statements, error) {
	switch {
	case f.ended:
		return nil, sql.ErrTxDone
	case f.tx != nil || f.failed != nil:
		return f.on, f.failed
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case f.on == nil:
		if f.tx, f.failed = beginTx(ctx, f.conn); f.failed != nil {
			f.failed = fmt.Errorf("%w: it could not begin: %w", sql.ErrTxDone, f.failed)
			return nil, f.failed
		}
		f.on = f.tx
		return f.on, nil
	}
	// A connection that database/sql takes for bad it closes, as soon as no result is
	// open, whose reader may be the one who waits here.
	if err := f.idle(); err != nil {
		return nil, err
	}
	f.last.close() // it has been read to its end
	f.last = opened{}
	return f.on, nil
}

// idle returns why no statement can run on the connection, or nil.
func (f *flight) idle() error { return f.raw(f.pipeline.Idle) }

// QueryContext is that of *sql.Tx.
func (f *flight) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.query(ctx, query, args)
}

func (f *flight) query(ctx context.Context, query string, args []any) (*sql.Rows, error) {
	on, err := f.begun(ctx)
	if err != nil {
		return nil, err
	}
	rows, err := on.QueryContext(ctx, query, args...)
	if err == nil && f.tx == nil {
		f.last.rows = rows
	}
	return rows, err
}

// QueryRowContext is that of *sql.Tx.
func (f *flight) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, err := f.begun(ctx); err == nil && f.tx != nil {
		return f.tx.QueryRowContext(ctx, query, args...)
	}
	rows, err := f.query(ctx, query, args)
	if err != nil {
		return rowOf(ctx, nil, err)
	}
	ctx, f.last.cancel = context.WithCancel(ctx)
	return rowOf(ctx, rows, nil)
}

// PrepareContext is that of *sql.Tx.
func (f *flight) PrepareContext(ctx context.Context, query string) (*sql.Stmt, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	tx, err := f.sqlTx(ctx)
	if err != nil {
		return nil, err
	}
	return tx.PrepareContext(ctx, query)
}

// StmtContext is that of *sql.Tx.
func (f *flight) StmtContext(ctx context.Context, stmt *sql.Stmt) *sql.Stmt {
	f.mu.Lock()
	defer f.mu.Unlock()
	tx, err := f.sqlTx(ctx)
	if err != nil {
		return refusedStmt()
	}
	return tx.StmtContext(ctx, stmt)
}

// sqlTx returns a *sql.Tx for what nothing else can do: to see the end of statements
// that are prepared. If the transaction has begun without it, PostgreSQL takes the
// second BEGIN with a warning.
func (f *flight) sqlTx(ctx context.Context) (*sql.Tx, error) {
	_, err := f.begun(ctx)
	if err == nil && f.tx == nil {
		f.on = nil
		_, err = f.begun(ctx)
	}
	return f.tx, err
}

// Commit is that of *sql.Tx. Where nothing has begun there is nothing to commit.
func (f *flight) Commit() error {
	return f.end((*sql.Tx).Commit, f.pipeline.Commit)
}

// Rollback is that of *sql.Tx. A connection on which it fails is discarded.
func (f *flight) Rollback() error {
	err := f.end((*sql.Tx).Rollback, f.pipeline.Rollback)
	switch {
	case errors.Is(err, sql.ErrTxDone): // there is nothing left to roll back
		return nil
	case err != nil:
		discard(f.conn)
	}
	return err
}

// end ends the transaction. A COMMIT that has failed may be followed by a rollback.
func (f *flight) end(begunThere func(*sql.Tx) error, begunHere func(context.Context, any) error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended = true
	f.last.close()
	switch {
	case f.tx != nil:
		return begunThere(f.tx)
	case f.on == nil:
		return f.failed
	}
	return f.raw(func(driverConn any) error { return begunHere(f.ctx, driverConn) })
}

func (f *flight) raw(fn func(driverConn any) error) error {
	return cmp.Or(raw(f.conn, fn))
}
