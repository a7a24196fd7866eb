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
// time. It does so with what has run more than once, and in a part of what the server
// holds for all of its clients. It is safe for concurrent use.
type prepared struct{ *kept }

// kept is what outlives a prepared, to be closed.
type kept struct {
	db      *sql.DB
	dialect *sqlstore.Dialect

	mu    sync.Mutex
	ran   map[string]bool // once, and not been prepared
	due   []string
	stmts map[string]*sql.Stmt
	room  int  // how many it may keep
	off   bool // it keeps none, since there is no room, or the driver does not prepare
	asked bool // for the room

	// using is held while a statement is prepared on one more connection, so that
	// none is that has been given back.
	using sync.RWMutex
}

// newPrepared returns nil where the driver needs none.
func newPrepared(db *sql.DB, d *sqlstore.Dialect) *prepared {
	if d.CountPrepared == "" {
		return nil
	}
	p := &prepared{&kept{db: db, dialect: d, ran: map[string]bool{}, stmts: map[string]*sql.Stmt{}}}
	// An outbox may be made for a single call, on a pool that lives on.
	runtime.AddCleanup(p, (*kept).close, p.kept)
	return p
}

// exec runs a statement in a transaction. A server that holds no more prepared
// statements has run nothing, and the transaction is as it was: so what is kept is given
// back, and the statement runs once more without being kept.
func (p *prepared) exec(ctx context.Context, tx *sql.Tx, query string, args []any) (int64, error) {
	n, err := p.once(ctx, tx, query, args)
	if err != nil && p.dialect.OutOfPrepared(err) && p.giveBack() {
		n, err = exec(ctx, tx, query, args...)
	}
	return n, err
}

func (p *prepared) once(ctx context.Context, tx *sql.Tx, query string, args []any) (int64, error) {
	if stmt := p.on(ctx, tx, query); stmt != nil {
		result, err := stmt.ExecContext(ctx, args...)
		return affected(ctx, result, err)
	}
	n, err := exec(ctx, tx, query, args...)
	if err == nil && len(args) > 0 {
		p.note(query)
	}
	return n, err
}

// on returns the statement as it is prepared on the transaction's connection, or nil.
func (k *kept) on(ctx context.Context, tx *sql.Tx, query string) *sql.Stmt {
	k.using.RLock()
	defer k.using.RUnlock()
	if stmt := k.get(query); stmt != nil {
		return tx.StmtContext(ctx, stmt)
	}
	return nil
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
	case k.off, k.asked && len(k.stmts) >= k.room:
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
	may := k.mayKeep(ctx)
	for may && len(due) > 0 {
		stmt, err := k.db.PrepareContext(ctx, due[0])
		switch {
		case err == nil:
			may = k.keep(due[0], stmt)
		case ctx.Err() != nil:
			k.mu.Lock()
			k.due = append(k.due, due...) // somebody with more time may go on
			k.mu.Unlock()
			return
		case k.dialect.OutOfPrepared(err):
			k.giveBack()
			may = false
		}
		due = due[1:]
	}
	if !may && ctx.Err() != nil {
		k.mu.Lock()
		k.due = append(k.due, due...)
		k.mu.Unlock()
	}
}

// keep takes a statement that has been prepared, and reports whether there is room for
// another one.
func (k *kept) keep(query string, stmt *sql.Stmt) (more bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.off { // what it would join has been given back meanwhile
		_ = stmt.Close()
		return false
	}
	k.stmts[query] = stmt
	return len(k.stmts) < k.room
}

// giveBack closes what is kept, and keeps nothing any more. It reports whether there was
// anything. A connection that is in use closes its own once it goes back to the pool.
func (k *kept) giveBack() bool {
	k.using.Lock()
	defer k.using.Unlock()
	k.mu.Lock()
	stmts := k.stmts
	k.stmts, k.due, k.asked, k.off = nil, nil, true, true
	k.mu.Unlock()
	for _, stmt := range stmts {
		_ = stmt.Close() // the connections may be gone
	}
	return len(stmts) > 0
}

// mayKeep reports whether there is room for another statement, and whether it is of use:
// where the driver prepares statements by itself, the session has prepared one more when
// it is asked again.
func (k *kept) mayKeep(ctx context.Context) bool {
	k.mu.Lock()
	asked, may := k.asked, !k.off && len(k.stmts) < k.room
	k.mu.Unlock()
	if asked {
		return may
	}
	room, err := k.ask(ctx)
	k.mu.Lock()
	defer k.mu.Unlock()
	if ctx.Err() == nil && !k.asked {
		k.asked, k.room = true, room
		k.off = err != nil || room == 0
	}
	return k.asked && !k.off && len(k.stmts) < k.room
}

// ask returns how many statements may be kept, 0 where the driver prepares none.
func (k *kept) ask(ctx context.Context) (room int, err error) {
	conn, err := k.db.Conn(ctx)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	var name string
	var counts [2]int
	for i := range counts {
		if err := conn.QueryRowContext(ctx, k.dialect.CountPrepared, "Com_stmt_prepare").Scan(&name, &counts[i]); err != nil {
			return 0, err
		}
	}
	if counts[1] == counts[0] {
		return 0, nil
	}
	err = conn.QueryRowContext(ctx, k.dialect.PreparedRoom).Scan(&room)
	return room, err
}

func (k *kept) close() { k.giveBack() }
