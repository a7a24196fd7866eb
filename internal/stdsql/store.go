package stdsql

import (
	"context"
	"database/sql"

	"github.com/onward-go/outbox/internal/sqlstore"
	"github.com/onward-go/outbox/persistence"
)

// Beginner opens a transaction, as [Transactions] does.
type Beginner func(context.Context) (persistence.Tx, error)

// NewStore returns the stores of a database, which its pool stands for. Chained opens a
// transaction that another may follow.
func NewStore(cfg sqlstore.Config, db *sql.DB, alone, chained Beginner) *sqlstore.Store {
	pool := Pool{db}
	cfg.Database = db
	cfg.Pool = pool
	cfg.MaxConnections = pool.MaxConnections
	cfg.Begin = alone
	cfg.BeginChained = chained
	cfg.Session = func(ctx context.Context) (sqlstore.Session, error) { return OpenSession(ctx, db) }
	return sqlstore.New(cfg)
}
