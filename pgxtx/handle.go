package pgxtx

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/onward-go/outbox/internal/pgpipeline"
	"github.com/onward-go/outbox/internal/sqlstore"
	"github.com/onward-go/outbox/persistence"
)

// handle is what users run the statements of a transaction through: it passes
// them on and lets the transaction watch their errors. It refuses them once the
// transaction has ended, and those that would end it. It embeds a pgx.Tx to have
// what later versions of pgx add to one.
type handle struct {
	pgx.Tx                    // what the statements run through, or notBegun
	watch     *tx             // nil where there is no transaction
	asked     context.Context // that of whoever asked for the handle; some methods have none
	refused   error           // why there is none
	savepoint bool            // Tx is one that the user has made
}

var _ pgx.Tx = (*handle)(nil)

// handle returns one, whose first statement begins the transaction.
func (t *tx) handle(ctx context.Context) *handle {
	h := &handle{Tx: t.pgx, watch: t, asked: ctx}
	if h.Tx == nil {
		h.Tx = notBegun
	}
	return h
}

// notBegun is in place of a transaction that has not begun.
var notBegun = closedTx()

// ready returns why a statement must not run, or begins the transaction for it,
// unless that has begun.
func (h *handle) ready(ctx context.Context, query string) error {
	if err := h.refuse(query); err != nil {
		return err
	}
	return h.begin(ctx)
}

// begin begins the transaction, unless it has begun.
func (h *handle) begin(ctx context.Context) error {
	if h.Tx != notBegun {
		return nil
	}
	if err := h.watch.begin(ctx); err != nil {
		return fmt.Errorf("pgxtx: begin transaction: %w", err)
	}
	h.Tx = h.watch.pgx
	return nil
}

// refusing returns a handle whose every statement fails.
func refusing(err error) *handle { return &handle{Tx: closedTx(), refused: err} }

// closedTx returns a transaction that has ended. Only pgx can make one, and what
// it answers for a batch that could not begin its own is the way to get it.
func closedTx() pgx.Tx {
	batch := &pgx.Batch{}
	batch.BeginTx(pgx.TxOptions{})
	return pgx.FailedBatchResults(batch, pgx.ErrTxClosed).Tx()
}

var errEnds = fmt.Errorf("pgxtx: %w: Atomically ends the transaction, or whoever opened it", persistence.ErrInTransaction)

// refuse returns why a statement must not run.
func (h *handle) refuse(query string) error {
	if err := cmp.Or(h.refused, sqlstore.Postgres.RefuseEnd(query)); err != nil {
		return err
	}
	h.watch.set = h.watch.set || sqlstore.SetsTransaction(query)
	return h.watch.check()
}

// ran takes note of a statement that ran, and of its error.
func (h *handle) ran(query string, err error) {
	if h.savepoint && errors.Is(err, pgx.ErrTxClosed) {
		return // the savepoint has ended, the transaction need not have
	}
	_ = h.watch.ran(query, err)
}

// Begin makes a savepoint.
func (h *handle) Begin(ctx context.Context) (pgx.Tx, error) {
	if err := h.ready(ctx, ""); err != nil {
		return nil, err
	}
	made, err := h.Tx.Begin(ctx)
	h.ran("SAVEPOINT", err)
	if err != nil {
		return nil, err
	}
	return &handle{Tx: made, watch: h.watch, savepoint: true}, nil
}

// Commit releases a savepoint. It refuses to commit the transaction: in the
// middle of Atomically that would leave the rest without one.
func (h *handle) Commit(ctx context.Context) error { return h.end(ctx, pgx.Tx.Commit) }

// Rollback rolls back to a savepoint. It refuses for the transaction likewise.
func (h *handle) Rollback(ctx context.Context) error { return h.end(ctx, pgx.Tx.Rollback) }

func (h *handle) end(ctx context.Context, end func(pgx.Tx, context.Context) error) error {
	if err := h.refuse(""); err != nil {
		return err
	}
	if !h.savepoint {
		return errEnds
	}
	h.watch.finish()
	err := end(h.Tx, ctx)
	h.ran("the end of a savepoint", err)
	return err
}

// Exec is that of pgx.Tx. If it is the first statement, the transaction begins in
// the same round trip.
func (h *handle) Exec(ctx context.Context, sql string, args ...any) (tag pgconn.CommandTag, err error) {
	if err := h.refuse(sql); err != nil {
		return tag, err
	}
	if h.beginsWith(args) {
		tag, err = h.watch.beginWith(ctx, sql, args)
	} else if err = h.begin(ctx); err == nil {
		tag, err = h.Tx.Exec(ctx, sql, args...)
	}
	h.ran(sql, err)
	return tag, err
}

// beginsWith reports whether the transaction has not begun, and can with a statement
// of these arguments.
func (h *handle) beginsWith(args []any) bool {
	return h.Tx == notBegun && h.watch.pgx == nil && h.watch.before == nil && pgpipeline.CanBegin(args)
}

// Query is that of pgx.Tx.
func (h *handle) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if err := h.ready(ctx, sql); err != nil {
		return noRows{err}, err
	}
	found, err := h.Tx.Query(ctx, sql, args...)
	if err != nil {
		h.ran(sql, err)
		return found, err
	}
	r := &rows{found, h, sql}
	h.watch.opened(r)
	return r, nil
}

// QueryRow is that of pgx.Tx.
func (h *handle) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if err := h.ready(ctx, sql); err != nil {
		return noRows{err}
	}
	r := &row{h.Tx.QueryRow(ctx, sql, args...), h, sql}
	h.watch.opened(r)
	return r
}

// SendBatch is that of pgx.Tx.
func (h *handle) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	for _, queued := range b.QueuedQueries {
		if err := h.refuse(queued.SQL); err != nil {
			return pgx.FailedBatchResults(b, err)
		}
	}
	if err := h.ready(ctx, ""); err != nil {
		return pgx.FailedBatchResults(b, err)
	}
	r := &batch{BatchResults: h.Tx.SendBatch(ctx, b), of: h, queued: b.QueuedQueries}
	h.watch.opened(r)
	return r
}

// CopyFrom is that of pgx.Tx.
func (h *handle) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, rows pgx.CopyFromSource) (int64, error) {
	if err := h.ready(ctx, ""); err != nil {
		return 0, err
	}
	n, err := h.Tx.CopyFrom(ctx, table, columns, rows)
	h.ran("COPY "+table.Sanitize(), err)
	return n, err
}

// Prepare is that of pgx.Tx.
func (h *handle) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	if err := h.ready(ctx, sql); err != nil {
		return nil, err
	}
	prepared, err := h.Tx.Prepare(ctx, name, sql)
	h.ran(sql, err)
	return prepared, err
}

// LargeObjects is that of pgx.Tx.
func (h *handle) LargeObjects() pgx.LargeObjects {
	if h.ready(h.asked, "") != nil {
		closed := closedTx()
		return closed.LargeObjects()
	}
	return h.Tx.LargeObjects()
}

// Conn is that of pgx.Tx, or nil where the transaction has ended.
func (h *handle) Conn() *pgx.Conn {
	if h.ready(h.asked, "") != nil {
		return nil
	}
	return h.Tx.Conn()
}
