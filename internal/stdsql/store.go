package stdsql

import (
	"context"
	"database/sql"

	"github.com/onward-go/outbox/internal/sqlstore"
	"github.com/onward-go/outbox/persistence"
)

// NewStore returns the stores of a database, which its pool stands for. Begin opens a
// transaction by [Begin], in a chain with the pipeline p, which may be nil.
func NewStore(cfg sqlstore.Config, db *sql.DB, p Pipeline, begin func(context.Context, Pipeline) (persistence.Tx, error)) *sqlstore.Store {
	pool := Pool{db}
	cfg.Database = db
	cfg.Pool = pool
	cfg.MaxConnections = pool.MaxConnections
	cfg.Begin = func(ctx context.Context) (persistence.Tx, error) { return begin(ctx, nil) }
	cfg.BeginChained = func(ctx context.Context) (persistence.Tx, error) { return begin(ctx, p) }
	cfg.Session = func(ctx context.Context) (sqlstore.Session, error) { return OpenSession(ctx, db) }
	return sqlstore.New(cfg)
}
