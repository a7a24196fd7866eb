package gormtx

import (
	"context"
	"database/sql"
	"fmt"

	"gorm.io/gorm"

	"github.com/onward-go/outbox/internal/stdsql"
	"github.com/onward-go/outbox/persistence"
)

// tx is the handle that travels in the context.
type tx struct {
	*stdsql.Tx
	db     *gorm.DB // of the transaction
	origin *gorm.DB // the user's
	pool   *sql.DB
}

var _ persistence.Following = (*tx)(nil)

func newTx(t *stdsql.Tx, db *gorm.DB, pool *sql.DB) *tx {
	var statements stdsql.Statements = t.SQLTx()
	// A user who turned on GORM's prepared statements has them here, too.
	if prepared, ok := db.ConnPool.(*gorm.PreparedStmtDB); ok {
		statements = uncached(&gorm.PreparedStmtTX{Tx: t.SQLTx(), PreparedStmtDB: prepared})
	}
	session := session(context.Background(), db, &connPool{stdsql.NewHandle(t, statements), pool})
	return &tx{t, session, db, pool}
}

// Follow implements persistence.Following.
func (t *tx) Follow(committed func(error)) persistence.Tx {
	return newTx(t.FollowedBy(committed), t.origin, t.pool)
}

// session returns a *gorm.DB like db, without its conditions, whose statements
// run through pool, also in sessions that are made of it.
func session(ctx context.Context, db *gorm.DB, pool *connPool) *gorm.DB {
	s := db.Session(&gorm.Session{NewDB: true, Context: ctx})
	s.Statement.ConnPool = pool
	return s
}

// connPool is what GORM takes for the transaction. It is a gorm.Tx, so that GORM
// nests by savepoint and prepares statements inside.
type connPool struct {
	*stdsql.Handle
	pool *sql.DB
}

var (
	_ gorm.Tx             = (*connPool)(nil)
	_ gorm.GetDBConnector = (*connPool)(nil)
)

// Commit refuses: a commit in the middle of Atomically would leave the rest
// without a transaction.
func (p *connPool) Commit() error { return errEnds }

// Rollback refuses, for the same reason.
func (p *connPool) Rollback() error { return errEnds }

var errEnds = fmt.Errorf("gormtx: %w: Atomically ends the transaction, or whoever opened it", persistence.ErrInTransaction)

// GetDBConn refuses, and with it DB and Connection of the *gorm.DB: they would give out
// the pool, or another connection of it, whose statements are not in the transaction.
func (p *connPool) GetDBConn() (*sql.DB, error) { return nil, errLeaves }

var errLeaves = fmt.Errorf("gormtx: %w: DB and Connection lead out of it; run the statements on the *gorm.DB of the transaction", persistence.ErrInTransaction)

// poolOf returns the pool under db, also where db is a transaction of this package. A
// plugin that wraps a transaction need not know the pool: that of the database is the same.
func poolOf(db *gorm.DB) (*sql.DB, error) {
	pool := db.ConnPool
	if db.Statement != nil && db.Statement.ConnPool != nil {
		pool = db.Statement.ConnPool
	}
	for prepared, ok := pool.(*gorm.PreparedStmtTX); ok; prepared, ok = pool.(*gorm.PreparedStmtTX) {
		pool = prepared.Tx
	}
	if own, ok := pool.(*connPool); ok {
		return own.pool, nil
	}
	found, err := db.DB()
	if err != nil && db.Statement != nil {
		found, err = (&gorm.DB{Config: db.Config}).DB()
	}
	if err != nil {
		return nil, fmt.Errorf("gormtx: %w: there is no *sql.DB under the *gorm.DB, whose connection is a %T: have it implement gorm.GetDBConnector: %w",
			persistence.ErrInvalid, pool, err)
	}
	return found, nil
}
