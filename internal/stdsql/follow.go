package stdsql

import (
	"context"
	"database/sql"

	"github.com/onward-go/outbox/persistence"
)

// Pipeline lets a transaction begin in the round trip of a statement, its first or the
// COMMIT of the one before, on a driver's own connections. To database/sql, those that
// follow each other are one transaction.
type Pipeline interface {
	// Ready reports whether the transaction that is open on a connection can be
	// followed by another one.
	Ready(driverConn any) bool
	// Follow commits the transaction that is open, begins the next one with a
	// statement, and returns how many rows that has affected. Committed is told what
	// became of the COMMIT, as soon as it is known; if it failed, the statement has
	// not run.
	Follow(ctx context.Context, driverConn any, query string, args []any, committed func(error)) (rows int64, err error)
	// Commit commits the transaction that is open.
	Commit(ctx context.Context, driverConn any) error
	// Begin begins a transaction where none is open.
	Begin(ctx context.Context, driverConn any) error
	// CanBegin reports whether a transaction can begin with a statement of these
	// arguments.
	CanBegin(driverConn any, args []any) bool
	// BeginWith begins a transaction with a statement, in one round trip. If the
	// statement fails there may be a transaction, which cannot commit, or none.
	BeginWith(ctx context.Context, driverConn any, query string, args []any) (rows int64, begun bool, err error)
	// Idle returns why no statement can run on a connection: it is lost, or a result is
	// open.
	Idle(driverConn any) error
	// Rollback rolls back the transaction that is open, if one is.
	Rollback(ctx context.Context, driverConn any) error
}

// Hold implements persistence.Following.
func (t *Tx) Hold() (ready bool) {
	if t.pipeline == nil || t.begun == nil || t.committed != nil || t.handsOn() {
		return false
	}
	lost, _ := raw(t.conn, func(driverConn any) error {
		ready = t.pipeline.Ready(driverConn)
		return nil
	})
	return lost == nil && ready
}

// handsOn reports whether a transaction that follows would be of another kind.
func (t *Tx) handsOn() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.set
}

// Follow implements persistence.Following.
func (t *Tx) Follow(committed func(error)) persistence.Tx { return t.FollowedBy(committed) }

// FollowedBy is Follow, for those who wrap a Tx.
func (t *Tx) FollowedBy(committed func(error)) *Tx {
	t.end(sql.ErrTxDone)
	return &Tx{dialect: t.dialect, pipeline: t.pipeline, statements: t.statements, conn: t.conn, begun: t.begun, committed: committed}
}

// ready returns why no statement may run in the transaction, or nil. What it follows
// has ended then, and it has begun.
func (t *Tx) ready(ctx context.Context) error {
	if err := t.Check(ctx); err != nil || t.committed == nil {
		return err
	}
	if err := t.endBefore(ctx); err != nil {
		return err
	}
	err := t.raw(func(driverConn any) error { return t.pipeline.Begin(ctx, driverConn) })
	if err != nil {
		t.end(err)
	}
	return err
}

// follow begins the transaction with a statement as the one before ends.
func (t *Tx) follow(ctx context.Context, query string, args []any) (rows int64, err error) {
	err = t.raw(func(driverConn any) (err error) {
		rows, err = t.pipeline.Follow(ctx, driverConn, query, args, t.told)
		return err
	})
	return rows, err
}

// endBefore commits the transaction before, if there is one left.
func (t *Tx) endBefore(ctx context.Context) error {
	if t.committed == nil {
		return nil
	}
	err := t.raw(func(driverConn any) error { return t.pipeline.Commit(ctx, driverConn) })
	t.told(err)
	return err
}

// told tells, once, what became of the transaction before.
func (t *Tx) told(err error) {
	committed := t.committed
	if committed == nil {
		return
	}
	t.committed = nil
	if err != nil {
		t.end(err)
	}
	committed(err)
}

// raw runs a function with the driver's connection. If there is none any more, that is
// what becomes of the transaction before.
func (t *Tx) raw(fn func(driverConn any) error) error {
	lost, err := raw(t.conn, fn)
	if lost != nil {
		t.told(lost)
		return lost
	}
	return err
}
