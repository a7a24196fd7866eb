package pgxtx

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onward-go/outbox/internal/pgpipeline"
	"github.com/onward-go/outbox/internal/sqlstore"
	"github.com/onward-go/outbox/persistence"
)

// tx is an open transaction: a persistence.Tx and a sqlstore.Conn. It watches
// the statements that run through it, the user's own, too: once the connection
// is lost, or a statement has ended the transaction, every further one is
// refused, since it would commit by itself.
//
// It begins with its first statement, in the same round trip, unless somebody
// needs it before.
type tx struct {
	pgx  pgx.Tx        // nil until it begins
	conn *pgxpool.Conn // nil if the transaction was begun elsewhere, or has ended
	// before is what this one follows on the connection, until that is ended.
	before *predecessor
	// set says that a statement has made this a transaction of another kind, which must
	// not be handed on.
	set bool
	// results are those that the user has not closed yet.
	results []result
	failed  sqlstore.FailedStatement

	mu    sync.Mutex
	cause error // why the transaction cannot commit any more
}

// result is what has to be read to its end before the connection can be used
// again.
type result interface{ finish() }

var (
	_ persistence.Following = (*tx)(nil)
	_ sqlstore.Conn         = (*tx)(nil)
)

var (
	errDone   = fmt.Errorf("%w: it has ended: %w", persistence.ErrNoTransaction, pgx.ErrTxClosed)
	errLost   = errors.New("the connection is closed")
	errSilent = errors.New("a statement has ended the whole transaction")
)

// open opens a transaction on a connection of its own. Ctx bounds the wait for
// the connection; the transaction does not end with it, so that nothing but Commit
// decides whether it commits.
func open(ctx context.Context, pool *pgxpool.Pool) (persistence.Tx, error) {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	return &tx{conn: conn}, nil
}

// begin begins the transaction, unless it has begun.
func (t *tx) begin(ctx context.Context) error {
	if err := t.check(); err != nil || t.pgx != nil {
		return err
	}
	if err := t.endBefore(ctx); err != nil {
		return err
	}
	begun, err := t.conn.Begin(ctx)
	if err != nil {
		t.end(err) // if it may have begun all the same, pgx has closed the connection
		return err
	}
	t.pgx = begun
	return nil
}

// beginWith begins the transaction with a statement.
func (t *tx) beginWith(ctx context.Context, query string, args []any) (tag pgconn.CommandTag, err error) {
	t.pgx, tag, err = pgpipeline.BeginWith(ctx, t.conn.Conn(), query, args)
	if t.pgx == nil {
		t.end(err)
	}
	return tag, err
}

// enlist returns a tx for a transaction that was begun elsewhere and is ended
// there. Its statements need not pass here.
func enlist(begun pgx.Tx) *tx { return &tx{pgx: begun} }

// Exec implements sqlstore.Conn.
func (t *tx) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	if err := t.check(); err != nil {
		return 0, err
	}
	switch {
	case t.before != nil:
		n, err := t.follow(ctx, query, args)
		return n, t.ran(query, err)
	case t.pgx == nil:
		tag, err := t.beginWith(ctx, query, args)
		return tag.RowsAffected(), t.ran(query, err)
	}
	n, err := sqlConn{t.pgx}.Exec(ctx, query, args...)
	return n, t.ran(query, err)
}

// Query implements sqlstore.Conn.
func (t *tx) Query(ctx context.Context, query string, args []any, row func(func(...any) error) error) error {
	if err := t.begin(ctx); err != nil {
		return err
	}
	return t.ran(query, sqlConn{t.pgx}.Query(ctx, query, args, row))
}

// ran takes note of a statement that ran, and returns its error.
func (t *tx) ran(query string, err error) error {
	if errors.Is(err, pgx.ErrTxClosed) {
		t.end(errDone)
		return errDone
	}
	t.failed.Ran(sqlstore.Postgres, query, err)
	t.look(query, err)
	if cause := t.Err(); err == nil && cause != nil {
		return fmt.Errorf("%w: %w", persistence.ErrNoTransaction, cause)
	}
	return err
}

// look asks the connection whether the transaction is still open, which costs
// nothing. Err, of a statement, is why it may not be. Only whoever holds the connection
// may ask.
func (t *tx) look(query string, err error) {
	err = sqlstore.Name(query, err)
	if t.pgx == nil {
		return
	}
	conn := t.pgx.Conn()
	switch {
	case err != nil && sqlstore.Postgres.EndsTransaction(err):
		t.end(err)
	case conn == nil: // somebody's own pgx.Tx
	case conn.IsClosed():
		t.end(cmp.Or(err, errLost))
	case conn.PgConn().TxStatus() == 'I':
		t.end(errSilent)
	}
}

// Err implements persistence.Tx.
func (t *tx) Err() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.cause
}

// check returns why no statement may run any more, or nil. What ran without
// passing here has left its trace in the connection.
func (t *tx) check() error {
	// Once a transaction that was begun elsewhere has ended, its connection is
	// somebody else's.
	if t.Err() == nil && t.conn != nil {
		t.look("", nil)
	}
	return t.Err()
}

// end makes every later use fail.
func (t *tx) end(cause error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.cause == nil {
		t.cause = cause
	}
}

// opened takes note of a result that the user has to close.
func (t *tx) opened(r result) { t.results = append(t.results, r) }

// closed takes note that he has, and reports whether that is news.
func (t *tx) closed(r result) bool {
	i := slices.Index(t.results, r)
	if i >= 0 {
		t.results = slices.Delete(t.results, i, i+1)
	}
	return i >= 0
}

// finish closes the results that the user has left open, which would block the
// connection.
func (t *tx) finish() {
	for _, r := range slices.Clone(t.results) {
		r.finish()
	}
}

// Savepoint implements persistence.Tx.
func (t *tx) Savepoint(ctx context.Context, name string) error {
	if t.before != nil { // which may be READ ONLY, where a savepoint can be made, too
		if err := t.begin(ctx); err != nil {
			return err
		}
	}
	return t.control(ctx, sqlstore.Savepoint(name))
}

// RollbackTo implements persistence.Tx.
func (t *tx) RollbackTo(ctx context.Context, name string) error {
	if err := t.control(ctx, sqlstore.RollbackTo(name)); err != nil {
		return err
	}
	return t.Release(ctx, name)
}

// Release implements persistence.Tx.
func (t *tx) Release(ctx context.Context, name string) error {
	return t.control(ctx, sqlstore.ReleaseSavepoint(name))
}

func (t *tx) control(ctx context.Context, statement string) error {
	t.finish()
	_, err := t.Exec(ctx, statement)
	return err
}

// Commit implements persistence.Tx. A COMMIT that the server answers with
// ROLLBACK is pgx.ErrTxCommitRollback.
func (t *tx) Commit(ctx context.Context) error {
	t.finish()
	if err := cmp.Or(t.check(), t.endBefore(ctx)); err != nil {
		return err
	}
	if t.pgx != nil {
		if err := t.pgx.Commit(ctx); err != nil {
			return t.failed.Explain(err)
		}
	}
	t.release()
	return nil
}

// Rollback implements persistence.Tx.
func (t *tx) Rollback(ctx context.Context) error {
	if t.conn == nil {
		return nil
	}
	defer t.release()
	t.finish()
	_ = t.endBefore(ctx)                          // it has been told
	if t.pgx == nil || t.conn.Conn().IsClosed() { // it has not begun, or the server rolls it back
		return nil
	}
	err := t.pgx.Rollback(ctx)
	if err == nil || errors.Is(err, pgx.ErrTxClosed) || sqlstore.Postgres.EndsTransaction(err) {
		return nil
	}
	return fmt.Errorf("the connection is discarded: %w", err)
}

// release gives the connection back. The pool takes none back that is closed, or
// in the middle of a transaction.
func (t *tx) release() {
	t.end(errDone)
	t.conn.Release()
	t.conn = nil
}
