package pgxtx

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/onward-go/outbox/internal/pgpipeline"
	"github.com/onward-go/outbox/persistence"
)

// predecessor is a transaction that has done its work and not been committed.
type predecessor struct {
	pgx       pgx.Tx
	committed func(error)
}

// Hold implements persistence.Following.
func (t *tx) Hold() bool {
	t.finish()
	return t.conn != nil && t.pgx != nil && !t.set && pgpipeline.Ready(t.conn.Conn())
}

// Follow implements persistence.Following.
func (t *tx) Follow(committed func(error)) persistence.Tx {
	next := &tx{conn: t.conn, before: &predecessor{t.pgx, committed}}
	t.end(errDone)
	t.conn = nil
	return next
}

// follow begins the transaction with a statement as the one before ends.
func (t *tx) follow(ctx context.Context, query string, args []any) (rows int64, err error) {
	before := t.before
	t.before = nil
	return pgpipeline.Follow(ctx, t.conn.Conn(), query, args, func(err error) {
		if err == nil {
			t.pgx = before.pgx // which does not know that it is another one
		} else {
			t.end(err)
		}
		before.committed(err)
	})
}

// endBefore commits the transaction before, if there is one left.
func (t *tx) endBefore(ctx context.Context) error {
	before := t.before
	if before == nil {
		return nil
	}
	t.before = nil
	err := before.pgx.Commit(context.WithoutCancel(ctx))
	if err != nil {
		t.end(err)
	}
	before.committed(err)
	return err
}
