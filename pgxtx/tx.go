package pgxtx

import (
	"context"
	"fmt"
	"reflect"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onward-go/outbox/persistence"
)

// DBTX runs statements. *pgxpool.Pool, *pgx.Conn and pgx.Tx are ones, and it
// fits the interface of the same name that sqlc generates for pgx. Begin makes a
// savepoint inside of a transaction, and a transaction outside.
type DBTX interface {
	Begin(ctx context.Context) (pgx.Tx, error)
	CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, rows pgx.CopyFromSource) (int64, error)
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	SendBatch(ctx context.Context, batch *pgx.Batch) pgx.BatchResults
}

// Tx returns the transaction that ctx carries, for repositories and handlers
// that run inside Atomically. Where ctx carries none, every statement of the
// value returned fails with [persistence.ErrNoTransaction], so that nothing is
// written outside of the transaction by mistake. Where ctx carries transactions of two
// databases, it is that of the inner one; [DB] names its database.
//
// The value is good until Atomically returns, for one goroutine at a time, as is
// all that runs on one connection of pgx. Its Begin makes a savepoint, whose Commit
// and Rollback release it and go back to it. Those of its own, and a statement that
// would end the transaction, are refused with [persistence.ErrInTransaction]:
// Atomically does that. Conn is nil where there is no transaction; what runs on it
// directly is not watched.
//
// A transaction that another face has opened is none here.
func Tx(ctx context.Context) pgx.Tx {
	if t, ok := persistence.Innermost(ctx).(*tx); ok {
		return t.handle(ctx)
	}
	return refusing(fmt.Errorf("pgxtx: %w: call Tx inside Atomically, with the context that Atomically passes on", persistence.ErrNoTransaction))
}

// DB returns the transaction that ctx carries if it is one of pool's, and
// otherwise pool, for repositories that work both inside and outside of
// Atomically. While such a transaction is open and takes no statements any
// more, every statement fails as those of [Tx] do.
func DB(ctx context.Context, pool *pgxpool.Pool) DBTX {
	current, err := persistence.Current(ctx, pool)
	if t, ok := current.(*tx); ok && err == nil {
		return t.handle(ctx)
	}
	if persistence.Holds(ctx, pool) {
		return refusing(fmt.Errorf("pgxtx: %w", err))
	}
	return pool
}

// WithTx returns a context that carries a transaction which was begun elsewhere,
// by pool.Begin or otherwise, on the outbox's own database. Stores and publishers
// of that database take part in it, and Atomically makes savepoints in it. It may
// be a savepoint of pgx, too, a pgx.Tx that the Begin of another one returned:
// what is published through it goes when that is rolled back.
//
// It commits and rolls back where it was begun. Two things follow:
//
//   - [persistence.AfterCommit] returns [persistence.ErrCommitNotObserved].
//   - Once the transaction, or the savepoint, has ended, Publish returns
//     [persistence.ErrNoTransaction].
//
// Nobody can tell whether tx is of the outbox's database: a transaction of
// another one that has the same tables gets the event. The error is
// [persistence.ErrInvalid] if tx is nil, or what is wrong with the outbox's
// options.
func (o *Outbox) WithTx(ctx context.Context, tx pgx.Tx) (context.Context, error) {
	if err := o.store.Invalid(); err != nil {
		return nil, err
	}
	if v := reflect.ValueOf(tx); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, fmt.Errorf("pgxtx: %w: the transaction is nil", persistence.ErrInvalid)
	}
	return persistence.Join(ctx, o.pool, enlist(tx)), nil
}
