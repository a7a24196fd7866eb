package stdsql

import (
	"context"
	"database/sql"
	"runtime"
	"sync"

	"github.com/onward-go/outbox/internal/sqlstore"
)

// prepared keeps the stores' own statements prepared on the connections of a pool,
// where the driver would prepare each anew, which takes a round trip and the server's
// time. It does so with what has run more than once. It is safe for concurrent use.
type prepared struct{ *kept }

// kept is what outlives a prepared, to be closed.
type kept struct {
	db    *sql.DB
	count string // of Dialect.CountPrepared

	mu    sync.Mutex
	ran   map[string]bool // once, and not been prepared
	due   []string
	stmts map[string]*sql.Stmt
	off   bool // the driver puts arguments into the text, as it has been told
	asked bool // whether it does
}

// newPrepared returns nil where the driver needs none.
func newPrepared(db *sql.DB, d *sqlstore.Dialect) *prepared {
	if d.CountPrepared == "" {
		return nil
	}
	p := &prepared{&kept{db: db, count: d.CountPrepared, ran: map[string]bool{}, stmts: map[string]*sql.Stmt{}}}
	// An outbox may be made for a single call, on a pool that lives on.
	runtime.AddCleanup(p, (*kept).close, p.kept)
	return p
}

// exec runs a statement in a transaction.
func (p *prepared) exec(ctx context.Context, tx *sql.Tx, query string, args []any) (int64, error) {
	if stmt := p.get(query); stmt != nil {
		result, err := tx.StmtContext(ctx, stmt).ExecContext(ctx, args...)
		return affected(ctx, result, err)
	}
	n, err := exec(ctx, tx, query, args...)
	if err == nil && len(args) > 0 {
		p.note(query)
	}
	return n, err
}

func (k *kept) get(query string) *sql.Stmt {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.stmts[query]
}

// note takes note of a statement that has run.
func (k *kept) note(query string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch again, known := k.ran[query]; {
	case k.off:
	case !known:
		k.ran[query] = true
	case again:
		k.ran[query] = false
		k.due = append(k.due, query)
	}
}

// prepare prepares what is due. It takes a connection of the pool, so nobody calls it
// who holds one, and meanwhile the lock is free for those who do. What the server
// refuses is not tried again: it runs as before.
func (k *kept) prepare(ctx context.Context) {
	k.mu.Lock()
	due := k.due
	k.due = nil
	k.mu.Unlock()
	if len(due) == 0 {
		return
	}
	prepares := k.driverPrepares(ctx)
	for prepares && len(due) > 0 {
		stmt, err := k.db.PrepareContext(ctx, due[0])
		if err != nil && ctx.Err() != nil {
			break
		}
		if err == nil {
			k.mu.Lock()
			k.stmts[due[0]] = stmt
			k.mu.Unlock()
		}
		due = due[1:]
	}
	if ctx.Err() != nil { // somebody with more time may go on
		k.mu.Lock()
		k.due = append(k.due, due...)
		k.mu.Unlock()
	}
}

// driverPrepares reports whether the driver prepares statements by itself: then the
// session has prepared one more when it is asked again.
func (k *kept) driverPrepares(ctx context.Context) bool {
	k.mu.Lock()
	asked, off := k.asked, k.off
	k.mu.Unlock()
	if asked {
		return !off
	}
	prepares, err := k.askTwice(ctx)
	k.mu.Lock()
	defer k.mu.Unlock()
	if ctx.Err() == nil {
		k.asked, k.off = true, err != nil || !prepares
	}
	return k.asked && !k.off
}

func (k *kept) askTwice(ctx context.Context) (more bool, err error) {
	conn, err := k.db.Conn(ctx)
	if err != nil {
		return false, err
	}
	defer conn.Close()
	var name string
	var counts [2]int
	for i := range counts {
		if err := conn.QueryRowContext(ctx, k.count, "Com_stmt_prepare").Scan(&name, &counts[i]); err != nil {
			return false, err
		}
	}
	return counts[1] > counts[0], nil
}

func (k *kept) close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, stmt := range k.stmts {
		_ = stmt.Close() // the connections may be gone
	}
}
