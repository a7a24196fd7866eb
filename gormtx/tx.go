package gormtx

import (
	"context"
	"fmt"

	"gorm.io/gorm"

	"github.com/onward-go/outbox/internal/stdsql"
	"github.com/onward-go/outbox/persistence"
)

// Tx returns the transaction that ctx carries, for repositories and handlers
// that run inside Atomically. Where ctx carries none, every statement of the
// value returned fails with [persistence.ErrNoTransaction], so that nothing is
// written outside of the transaction by mistake. Where ctx carries transactions of two
// databases, it is that of the inner one; [DB] names its database.
//
// The value is good until Atomically returns. Its Commit and Rollback are
// refused: Atomically ends the transaction. So are its DB and Connection, which
// would lead out of it, with [persistence.ErrInTransaction]. GORM finds the pool by
// itself in a session of it with PrepareStmt: call neither on such a one.
func Tx(ctx context.Context) *gorm.DB {
	if t, ok := persistence.Innermost(ctx).(*tx); ok {
		return t.db.WithContext(ctx)
	}
	return outside().WithContext(ctx)
}

// DB returns the transaction that ctx carries if it is one of db's database,
// also one that package sqltx opened, and otherwise db, for repositories that
// work both inside and outside of Atomically. While such a transaction is open
// and takes no statements any more, every statement fails as those of [Tx] do.
func DB(ctx context.Context, db *gorm.DB) *gorm.DB {
	pool, err := poolOf(db)
	if err != nil {
		return db.WithContext(ctx)
	}
	current, err := persistence.Current(ctx, pool)
	if err == nil {
		if t, ok := current.(*tx); ok {
			return t.db.WithContext(ctx)
		}
		if t, ok := current.(interface{ Handle() *stdsql.Handle }); ok {
			return session(ctx, db, &connPool{t.Handle(), pool})
		}
	}
	if persistence.Holds(ctx, pool) {
		return outside().WithContext(ctx)
	}
	return db.WithContext(ctx)
}

// WithTx returns a context that carries a transaction which was opened with
// GORM itself, by db.Transaction or db.Begin. Stores and publishers of the same
// database take part in it, and Atomically makes savepoints in it.
//
// It commits and rolls back where it was opened. Three things follow:
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
// A plugin may have put a connection of its own around GORM's: what has Commit and
// Rollback is taken for the transaction, as GORM does.
//
// The error is [persistence.ErrInvalid] if db is no transaction, and names the type of
// its connection.
func WithTx(ctx context.Context, db *gorm.DB) (context.Context, error) {
	pool, dialect, err := open(db)
	if err != nil {
		return nil, err
	}
	if db.Statement == nil {
		return nil, fmt.Errorf("gormtx: %w: the *gorm.DB has no statement", persistence.ErrInvalid)
	}
	if _, ok := db.Statement.ConnPool.(gorm.TxCommitter); !ok {
		return nil, fmt.Errorf("gormtx: %w: the *gorm.DB is no open transaction: its connection is a %T, without Commit and Rollback; pass the one that db.Transaction or db.Begin has made",
			persistence.ErrInvalid, db.Statement.ConnPool)
	}
	t := &tx{Tx: stdsql.Enlist(uncached(db.Statement.ConnPool), dialect)}
	t.db = session(ctx, db, &connPool{t.Handle(), pool})
	return persistence.Join(ctx, pool, t), nil
}
