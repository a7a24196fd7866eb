package stdsql

import (
	"cmp"
	"context"
	"database/sql"
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
	conn       *sql.Conn // nil unless the connection itself is needed
	begun      begun     // nil if the transaction was begun elsewhere
	pipeline   Pipeline  // nil if no other transaction can follow
	prepared   *prepared // nil where nothing is kept prepared
	// committed is told what becomes of the transaction that this one follows on the
	// connection; nil once it has been, or where there is none.
	committed func(error)

	failed sqlstore.FailedStatement

	mu    sync.Mutex
	cause error // why the transaction cannot commit any more
	doubt doubt
	// set says that a statement has made this a transaction of another kind, which must
	// not be handed on.
	set bool
}

// doubt says whether the transaction may have ended without a word that passed
// here.
type doubt int

const (
	none    doubt = iota
	once          // a statement may have ended it
	forever       // statements run that do not pass here
)

var errEndedSilently = errors.New("an earlier error, or a statement, ended the whole transaction")

// begun is a *sql.Tx, or a flight.
type begun interface {
	Statements
	Commit() error
	Rollback() error
}

// beginner is a pool or a connection.
type beginner interface {
	BeginTx(ctx context.Context, opts *sql.TxOptions) (*sql.Tx, error)
}

// Transactions opens transactions on a pool. It is safe for concurrent use.
type Transactions struct {
	db       *sql.DB
	dialect  *sqlstore.Dialect
	prepared *prepared
}

// NewTransactions returns one. It does not touch the database.
func NewTransactions(db *sql.DB, d *sqlstore.Dialect) *Transactions {
	return &Transactions{db, d, newPrepared(db, d)}
}

// Begin opens a transaction on a connection of its own. Ctx bounds the wait for
// the connection and the begin; the transaction does not end with it, so that
// nothing but Commit decides whether it commits. Another one can follow if there is a
// pipeline; p may be nil.
func (o *Transactions) Begin(ctx context.Context, p Pipeline) (*Tx, error) {
	t := &Tx{dialect: o.dialect, pipeline: p, prepared: o.prepared}
	if o.prepared != nil {
		o.prepared.prepare(ctx)
	}
	var on beginner = o.db
	if p != nil || len(o.dialect.Begin) > 0 {
		conn, err := o.db.Conn(ctx)
		if err != nil {
			return nil, err
		}
		t.conn, on = conn, conn
	}
	if err := t.begin(ctx, on); err != nil {
		// It may have begun before the error.
		return nil, errors.Join(err, t.Rollback(context.WithoutCancel(ctx)))
	}
	return t, nil
}

// BeginInFlight is Begin, but that the transaction begins in the round trip of its first
// statement, whose context bounds that. None can follow it.
func (o *Transactions) BeginInFlight(ctx context.Context, p Pipeline) (*Tx, error) {
	conn, err := o.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	f := &flight{pipeline: p, conn: conn, ctx: context.WithoutCancel(ctx)}
	return &Tx{dialect: o.dialect, statements: f, conn: conn, begun: f}, nil
}

func (t *Tx) begin(ctx context.Context, on beginner) error {
	tx, err := beginTx(ctx, on)
	if tx != nil {
		t.begun, t.statements = tx, tx
	}
	if err != nil {
		return err
	}
	// The driver's own begin is not the one that we need, so it is replaced
	// underneath.
	for _, statement := range t.dialect.Begin {
		if _, err := tx.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// beginTx begins a transaction, which database/sql would tie to the context. It is
// untied once it has begun. There may be one beside an error.
func beginTx(ctx context.Context, on beginner) (*sql.Tx, error) {
	untied, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, cancel)
	tx, err := on.BeginTx(untied, nil)
	switch {
	case stop():
	case tx == nil: // what it says is that our own context was cancelled
		err = context.Cause(ctx)
	default:
		err = errors.Join(err, context.Cause(ctx))
	}
	return tx, err
}

// Enlist returns a Tx for a transaction that was begun elsewhere and is ended
// there. Its statements need not pass here.
func Enlist(s Statements, d *sqlstore.Dialect) *Tx {
	return &Tx{dialect: d, statements: s, doubt: forever}
}

// SQLTx returns the *sql.Tx underneath, or nil if the transaction was not begun by
// [Transactions.Begin].
func (t *Tx) SQLTx() *sql.Tx {
	tx, _ := t.begun.(*sql.Tx)
	return tx
}

// Exec implements sqlstore.Conn.
func (t *Tx) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	if err := t.Check(ctx); err != nil {
		return 0, err
	}
	if t.committed != nil {
		n, err := t.follow(ctx, query, args)
		t.watch(query, err)
		return n, err
	}
	n, err := t.exec(ctx, query, args)
	t.watch(query, err)
	return n, err
}

func (t *Tx) exec(ctx context.Context, query string, args []any) (int64, error) {
	if tx := t.SQLTx(); tx != nil && t.prepared != nil {
		return t.prepared.exec(ctx, tx, query, args)
	}
	return exec(ctx, t.statements, query, args...)
}

// Query implements sqlstore.Conn.
func (t *Tx) Query(ctx context.Context, query string, args []any, row func(func(...any) error) error) error {
	if err := t.ready(ctx); err != nil {
		return err
	}
	err := forEachRow(ctx, t.statements, query, args, row)
	t.watch(query, err)
	return err
}

// watch takes note of a statement that ran, and of its error.
func (t *Tx) watch(query string, err error) {
	t.failed.Ran(t.dialect, query, err)
	if err != nil && t.prepared != nil && t.dialect.OutOfPrepared(err) {
		t.prepared.giveBack()
	}
	if err != nil && t.dialect.EndsTransaction(err) {
		t.end(sqlstore.Name(query, err))
	}
}

// Ran takes note of a statement of the user's that ran, and of its error. Rows
// says that its result is still to be read, by somebody whose errors do not
// pass here.
func (t *Tx) Ran(query string, rows bool, err error) {
	t.watch(query, err)
	if err != nil {
		return
	}
	if f := t.dialect.MayHaveEnded; f != nil && f(query, rows) {
		t.suspect(once)
	}
}

// Unwatched takes note that statements run from now on that do not pass here.
func (t *Tx) Unwatched() { t.suspect(forever) }

func (t *Tx) suspect(d doubt) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.doubt = max(t.doubt, d)
}

// refuse returns why a statement of the user's must not run, or nil. What the
// transaction follows has ended then.
func (t *Tx) refuse(ctx context.Context, query string) error {
	if err := t.dialect.RefuseEnd(query); err != nil {
		return err
	}
	if t.pipeline != nil && sqlstore.SetsTransaction(query) {
		t.mu.Lock()
		t.set = true
		t.mu.Unlock()
	}
	return t.ready(ctx)
}

// Err implements persistence.Tx.
func (t *Tx) Err() error { return t.Check(context.Background()) }

// Check returns why the transaction cannot commit any more, or nil. Where the
// server may have ended it without a word that passed here, it asks.
func (t *Tx) Check(ctx context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.cause != nil || t.dialect.ProbeOpen == "" || t.dialect.MayHaveEnded != nil && t.doubt == none {
		return t.cause
	}
	open, err := t.probe(ctx, t.statements)
	switch {
	case err != nil && ctx.Err() != nil:
		return err // we know no more than before
	case err != nil:
		t.cause = fmt.Errorf("ask whether the transaction is still open, which takes that no result is left open: %w", err)
	case !open:
		t.cause = t.failed.Explain(errEndedSilently)
	case t.doubt == once:
		t.doubt = none
	}
	return t.cause
}

// probe reports whether a transaction is open, by a statement that fails inside
// of one. What it begins outside is rolled back.
func (t *Tx) probe(ctx context.Context, s Statements) (open bool, err error) {
	_, err = s.ExecContext(ctx, t.dialect.ProbeOpen)
	switch {
	case err == nil:
		_, err = s.ExecContext(ctx, sqlstore.Rollback)
		return false, err
	case t.dialect.IsOpen(err):
		return true, nil
	}
	return false, err
}

// Savepoint implements persistence.Tx.
func (t *Tx) Savepoint(ctx context.Context, name string) error {
	// The one before may be READ ONLY, where a savepoint can be made, too.
	if err := t.ready(ctx); err != nil {
		return err
	}
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
	if err := cmp.Or(t.Err(), t.endBefore(ctx)); err != nil {
		return err
	}
	if err := t.begun.Commit(); err != nil {
		if t.dialect.AbortsOnError {
			err = t.failed.Explain(err)
		}
		return err
	}
	t.end(sql.ErrTxDone)
	return t.release()
}

// release gives the connection back, where we hold it.
func (t *Tx) release() error {
	if t.conn == nil {
		return nil
	}
	return t.conn.Close()
}

// Rollback implements persistence.Tx.
func (t *Tx) Rollback(ctx context.Context) error {
	t.end(sql.ErrTxDone)
	_ = t.endBefore(ctx) // it has been told
	var err error
	if t.begun != nil {
		err = t.begun.Rollback()
	}
	// A connection whose transaction is still open, since its end has failed,
	// must not go back to the pool.
	if len(t.dialect.Begin) > 0 { // the driver does not know that it was replaced
		if open, probeErr := t.probe(ctx, t.conn); open || probeErr != nil {
			discard(t.conn)
		}
		err = nil
	}
	for _, e := range []error{err, t.release()} {
		if e != nil && !t.dialect.EndsTransaction(e) { // else it went with its connection
			return fmt.Errorf("the connection is discarded: %w", e)
		}
	}
	return nil
}

// end makes every later use fail.
func (t *Tx) end(cause error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.cause == nil {
		t.cause = cause
	}
}
