package stdsql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync"

	"github.com/onward-go/outbox/internal/sqlstore"
)

// Tx is an open transaction: a persistence.Tx and a sqlstore.Conn. It watches
// the statements that run through it, the user's own, too: some errors end the
// whole transaction on the server and leave the session in autocommit, where
// the next statement would commit by itself. After such an error every further
// statement is refused.
type Tx struct {
	dialect    *sqlstore.Dialect
	statements Statements
	conn       *sql.Conn // nil if the transaction was begun elsewhere
	sqlTx      *sql.Tx   // nil if the dialect begins by statement

	mu      sync.Mutex
	cause   error // why the transaction cannot commit any more
	suspect bool  // a result is being read whose error would not pass here
}

var errEndedSilently = errors.New("an earlier error rolled the whole transaction back")

// Begin opens a transaction on a connection of its own. Ctx bounds the wait for
// the connection and the begin; the transaction does not end with it, so that
// nothing but Commit decides whether it commits.
func Begin(ctx context.Context, db *sql.DB, d *sqlstore.Dialect) (*Tx, error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	t := &Tx{dialect: d, conn: conn}
	if d.BeginImmediate != "" {
		t.statements = conn
		_, err = conn.ExecContext(ctx, d.BeginImmediate)
	} else {
		err = t.beginTx(ctx)
	}
	if err != nil {
		// It may have begun before the error.
		return nil, errors.Join(err, t.Rollback(context.WithoutCancel(ctx)))
	}
	return t, nil
}

func (t *Tx) beginTx(ctx context.Context) (err error) {
	// database/sql ties a transaction to the context of its begin. Untie it
	// once it has begun.
	untied, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, cancel)
	t.sqlTx, err = t.conn.BeginTx(untied, nil)
	if !stop() {
		err = errors.Join(err, context.Cause(ctx))
	}
	t.statements = t.sqlTx
	return err
}

// Enlist returns a Tx for a transaction that was begun elsewhere and is ended
// there.
func Enlist(s Statements, d *sqlstore.Dialect) *Tx {
	return &Tx{dialect: d, statements: s, suspect: true}
}

// SQLTx returns the *sql.Tx underneath, or nil where there is none.
func (t *Tx) SQLTx() *sql.Tx { return t.sqlTx }

// Statements returns what runs the transaction's statements unwatched.
func (t *Tx) Statements() Statements { return t.statements }

// Exec implements sqlstore.Conn.
func (t *Tx) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	if err := t.Err(); err != nil {
		return 0, err
	}
	n, err := exec(ctx, t.statements, query, args...)
	t.Watch(err)
	return n, err
}

// Query implements sqlstore.Conn.
func (t *Tx) Query(ctx context.Context, query string, args []any, row func(func(...any) error) error) error {
	if err := t.Err(); err != nil {
		return err
	}
	err := forEachRow(ctx, t.statements, query, args, row)
	t.Watch(err)
	return err
}

// Watch takes note of a statement's error.
func (t *Tx) Watch(err error) {
	if err == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.cause == nil && t.dialect.EndsTransaction(err) {
		t.cause = err
	}
	t.suspect = true
}

// Suspect takes note that a result is open whose errors will not be seen here.
func (t *Tx) Suspect() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.suspect = true
}

// Err implements persistence.Tx. Where the server ends transactions without a
// word, it asks.
func (t *Tx) Err() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.cause != nil || !t.suspect || t.dialect.ProbeOpen == "" {
		return t.cause
	}
	t.suspect = t.conn == nil // of one begun elsewhere we see no statement
	ctx := context.Background()
	if _, err := t.statements.ExecContext(ctx, t.dialect.ProbeOpen); err != nil {
		if errors.Is(err, sql.ErrTxDone) || errors.Is(err, sql.ErrConnDone) {
			t.cause = err
		}
		return t.cause // still open
	}
	t.cause = errEndedSilently
	if _, err := t.statements.ExecContext(ctx, sqlstore.Rollback); err != nil {
		t.cause = errors.Join(t.cause, err)
	}
	return t.cause
}

// Savepoint implements persistence.Tx.
func (t *Tx) Savepoint(ctx context.Context, name string) error {
	_, err := t.Exec(ctx, sqlstore.Savepoint(name))
	return err
}

// RollbackTo implements persistence.Tx.
func (t *Tx) RollbackTo(ctx context.Context, name string) error {
	if _, err := t.Exec(ctx, sqlstore.RollbackTo(name)); err != nil {
		return err
	}
	return t.Release(ctx, name)
}

// Release implements persistence.Tx.
func (t *Tx) Release(ctx context.Context, name string) error {
	_, err := t.Exec(ctx, sqlstore.ReleaseSavepoint(name))
	return err
}

// Commit implements persistence.Tx.
func (t *Tx) Commit(ctx context.Context) error {
	if err := t.Err(); err != nil {
		return err
	}
	if t.sqlTx != nil {
		if err := t.sqlTx.Commit(); err != nil {
			return err
		}
	} else if _, err := t.conn.ExecContext(ctx, sqlstore.Commit); err != nil {
		return err
	}
	t.end(sql.ErrTxDone)
	return t.conn.Close()
}

// Rollback implements persistence.Tx.
func (t *Tx) Rollback(ctx context.Context) error {
	ended := t.end(sql.ErrTxDone)
	var err error
	switch {
	case t.sqlTx != nil:
		err = t.sqlTx.Rollback()
		if errors.Is(err, sql.ErrTxDone) {
			err = nil
		}
	case t.dialect.BeginImmediate != "":
		_, err = t.conn.ExecContext(ctx, sqlstore.Rollback)
		if err != nil && t.open(ctx) {
			// A connection with an open transaction must not go back to the
			// pool.
			_ = t.conn.Raw(func(any) error { return driver.ErrBadConn })
		} else {
			err = nil
		}
	}
	if ended != nil || errors.Is(err, driver.ErrBadConn) || errors.Is(err, sql.ErrConnDone) {
		err = nil // it ended with its connection
	}
	if closeErr := t.conn.Close(); err == nil && !errors.Is(closeErr, sql.ErrConnDone) {
		err = closeErr
	}
	if err != nil {
		return fmt.Errorf("the connection is discarded: %w", err)
	}
	return nil
}

// end makes every later use fail, and returns why the transaction had ended
// before.
func (t *Tx) end(cause error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.cause
	if before == nil {
		t.cause = cause
	}
	return before
}

// open reports whether the connection has a transaction open.
func (t *Tx) open(ctx context.Context) bool {
	if _, err := t.conn.ExecContext(ctx, t.dialect.ProbeOpen); err != nil {
		return true
	}
	_, err := t.conn.ExecContext(ctx, sqlstore.Rollback)
	return err != nil
}
