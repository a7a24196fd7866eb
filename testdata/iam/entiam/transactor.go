package entiam

import (
	"context"
	"errors"

	"github.com/onward-go/outbox/persistence"
	"github.com/onward-go/outbox/sqltx"
	"github.com/onward-go/outbox/testdata/iam/entiam/ent"
)

// transactor begins transactions with ent. The outbox takes part in them.
type transactor struct {
	client *ent.Client
	outbox *sqltx.Outbox
}

// Atomically implements persistence.Transactor.
func (t transactor) Atomically(ctx context.Context, fn func(ctx context.Context) error) (err error) {
	if persistence.InTransaction(ctx) { // the dispatcher's, or one from here
		return t.outbox.Atomically(ctx, fn)
	}
	tx, err := t.client.Tx(ctx)
	if err != nil {
		return err
	}
	committed := false
	defer func() { // also when fn panics
		if !committed {
			err = errors.Join(err, tx.Rollback())
		}
	}()
	inTx, err := t.outbox.WithTx(ctx, tx)
	if err != nil {
		return err
	}
	if err := fn(inTx); err != nil {
		return err
	}
	// The server may have ended it, of which its commit would say nothing.
	if err := persistence.Innermost(inTx).Err(); err != nil {
		return err
	}
	committed = true
	return tx.Commit()
}
