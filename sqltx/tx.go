package sqltx

import (
	"context"
	"database/sql"
	"fmt"
	"reflect"

	"github.com/onward-go/outbox/internal/stdsql"
	"github.com/onward-go/outbox/persistence"
)

// DBTX runs statements. *sql.DB, *sql.Conn and *sql.Tx are ones, and it fits the
// interface of the same name that sqlc generates.
type DBTX interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	PrepareContext(ctx context.Context, query string) (*sql.Stmt, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// Tx returns the transaction that ctx carries, for repositories and handlers
// that run inside Atomically. Where ctx carries none, every statement of the
// value returned fails with [persistence.ErrNoTransaction], so that nothing is
// written outside of the transaction by mistake. Where ctx carries transactions of two
// databases, it is that of the inner one; [DB] names its database.
//
// The value is good until Atomically returns. A statement that would end the
// transaction is refused with [persistence.ErrInTransaction]: Atomically does
// that.
func Tx(ctx context.Context) DBTX {
	if t, ok := persistence.Innermost(ctx).(handled); ok {
		return t.Handle()
	}
	return stdsql.Refusing(fmt.Errorf("sqltx: %w: call Tx inside Atomically, with the context that Atomically passes on", persistence.ErrNoTransaction))
}

// handled is a transaction on database/sql, whichever face opened it.
type handled interface{ Handle() *stdsql.Handle }

// DB returns the transaction that ctx carries if it is one of db's, and
// otherwise db, for repositories that work both inside and outside of
// Atomically. While such a transaction is open and takes no statements any
// more, every statement fails as those of [Tx] do.
func DB(ctx context.Context, db *sql.DB) DBTX {
	current, err := persistence.Current(ctx, db)
	if t, ok := current.(handled); ok && err == nil {
		return t.Handle()
	}
	if persistence.Holds(ctx, db) {
		return stdsql.Refusing(fmt.Errorf("sqltx: %w", err))
	}
	return db
}

// Transaction is an open transaction that somebody else ends: a *sql.Tx, or
// what another library makes of it. Ent's is one with its feature sql/execquery.
type Transaction interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	Commit() error
	Rollback() error
}

// WithTx returns a context that carries a transaction which was begun elsewhere,
// by db.BeginTx or otherwise, on the outbox's own database. Stores and publishers
// of that database take part in it, and Atomically makes savepoints in it.
//
// It commits and rolls back where it was begun. Three things follow:
//
//   - [persistence.AfterCommit] returns [persistence.ErrCommitNotObserved].
//   - Statements of the transaction that do not go through [Tx] are not
//     watched. A database that may roll a transaction back by itself and go on
//     in autocommit, as MySQL does after a deadlock and SQLite after INSERT OR
//     ROLLBACK, is asked before each Publish and each statement of [Tx]. On
//     MySQL and MariaDB that is one more round trip.
//   - Once the transaction has ended, Publish returns
//     [persistence.ErrNoTransaction].
//
// Nobody can tell whether tx is of the outbox's database: a transaction of
// another one that has the same tables gets the event. The error is
// [persistence.ErrInvalid] if tx is nil, or what is wrong with the outbox's
// options.
func (o *Outbox) WithTx(ctx context.Context, tx Transaction) (context.Context, error) {
	if err := o.store.Invalid(); err != nil {
		return nil, err
	}
	if v := reflect.ValueOf(tx); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, fmt.Errorf("sqltx: %w: the transaction is nil", persistence.ErrInvalid)
	}
	return persistence.Join(ctx, o.db, stdsql.Enlist(tx, o.dialect)), nil
}
