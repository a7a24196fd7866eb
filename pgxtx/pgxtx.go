package pgxtx

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onward-go/outbox/internal/face"
	"github.com/onward-go/outbox/internal/sqlstore"
	"github.com/onward-go/outbox/persistence"
	"github.com/onward-go/outbox/schema"
)

// Outbox is a transactor and all stores over one database. It is safe for
// concurrent use. What is wrong with its options is returned by every call, as
// [persistence.ErrInvalid]; what is wrong with its tables by the first, as
// [persistence.ErrSchema].
type Outbox struct {
	persistence.Transactor
	persistence.FaultJudge
	persistence.TransactionLimit
	persistence.OutboxStore
	persistence.CommitObserver
	persistence.OutboxCursorStore
	persistence.CursorAdmin
	persistence.IdempotencyStore
	persistence.OutboxRetention
	persistence.DedupStore
	persistence.OutboxInspector
	persistence.StatusReader
	persistence.Validator

	store *sqlstore.Store
	pool  *pgxpool.Pool
}

// New returns the outbox of a database. It does not touch the database.
//
// Two values of one pool work together.
func New(pool *pgxpool.Pool, opts ...Option) *Outbox {
	s := newStore(pool, opts)
	return &Outbox{s, s, s, s, s, s, s, s, s, s, s, s, s, s, pool}
}

// Chain implements [persistence.Chainer], for dispatchers.
func (o *Outbox) Chain(of persistence.Transactor) persistence.Chain { return o.store.Chain(o, of) }

// Migrate creates or upgrades the tables, in one transaction and under a lock,
// so that replicas may start at once. It refuses a ctx that carries a
// transaction with [persistence.ErrInTransaction], and tables that are newer
// than this library with [persistence.ErrSchema].
func (o *Outbox) Migrate(ctx context.Context) error { return o.store.Migrate(ctx) }

// SchemaVersion returns the version of the tables, 0 if there are none, whether
// or not it is the one that this library needs.
func (o *Outbox) SchemaVersion(ctx context.Context) (int, error) { return o.store.SchemaVersion(ctx) }

// PendingMigrations returns the migrations that [Outbox.Migrate] would apply, in their
// order; none if the tables are those that the library needs.
func (o *Outbox) PendingMigrations(ctx context.Context) ([]schema.Migration, error) {
	return o.store.PendingMigrations(ctx)
}

// Migrate creates or upgrades the tables; see [Outbox.Migrate].
func Migrate(ctx context.Context, pool *pgxpool.Pool, opts ...Option) error {
	return New(pool, opts...).Migrate(ctx)
}

// RunRetention makes partitions for the coming months and drops those that
// ended longer than keep ago and hold nothing that a dispatcher still owes. It
// frees the dedup keys that are old enough ([WithKeepKeys]); see
// [persistence.Retain]. Call it from a scheduler of your own, daily or so.
// Behind a transaction pooler it works, too. It is safe to run from several
// replicas at once.
//
// The errors are [persistence.ErrOwed], [persistence.ErrLockTimeout],
// [persistence.ErrInTransaction] if ctx carries a transaction,
// [persistence.ErrInvalid] and [persistence.ErrSchema]. The report says what was
// done before the error.
func RunRetention(ctx context.Context, pool *pgxpool.Pool, keep time.Duration, opts ...RetentionOption) (persistence.RetentionReport, error) {
	var c retentionConfig
	for i, opt := range opts {
		if opt == nil {
			return persistence.RetentionReport{}, face.NilOption("pgxtx", i)
		}
		opt.applyToRetention(&c)
	}
	return persistence.Retain(ctx, New(pool, c.Options...), keep, c.RetentionOptions)
}

func newStore(pool *pgxpool.Pool, opts []Option) *sqlstore.Store {
	if pool == nil {
		return sqlstore.New(sqlstore.Config{Invalid: fmt.Errorf("pgxtx: %w: the *pgxpool.Pool is nil", persistence.ErrInvalid)})
	}
	cfg := face.New("pgxtx", opts).Store(sqlstore.Postgres)
	most := int(pool.Stat().MaxConns())
	cfg.Database = pool
	cfg.Pool = sqlConn{pool}
	cfg.MaxConnections = func() int { return most }
	cfg.Begin = func(ctx context.Context) (persistence.Tx, error) { return open(ctx, pool) }
	cfg.Session = func(ctx context.Context) (sqlstore.Session, error) { return openSession(ctx, pool) }
	return sqlstore.New(cfg)
}
