package gormtx

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"gorm.io/gorm"

	"github.com/onward-go/outbox/internal/face"
	"github.com/onward-go/outbox/internal/sqlstore"
	"github.com/onward-go/outbox/internal/stdpgx"
	"github.com/onward-go/outbox/internal/stdsql"
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
}

// New returns the outbox of a database. It does not touch the database.
//
// Stores and transactor run on the pool under db, also when db is a session or
// has conditions. Two values of one pool work together.
func New(db *gorm.DB, opts ...Option) *Outbox {
	s := newStore(db, opts)
	return &Outbox{s, s, s, s, s, s, s, s, s, s, s, s, s, s}
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
func Migrate(ctx context.Context, db *gorm.DB, opts ...Option) error {
	return New(db, opts...).Migrate(ctx)
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
func RunRetention(ctx context.Context, db *gorm.DB, keep time.Duration, opts ...RetentionOption) (persistence.RetentionReport, error) {
	var c retentionConfig
	for i, opt := range opts {
		if opt == nil {
			return persistence.RetentionReport{}, face.NilOption("gormtx", i)
		}
		opt.applyToRetention(&c)
	}
	return persistence.Retain(ctx, newStore(db, c.Options), keep, c.RetentionOptions)
}

// GormTransactor runs functions in GORM transactions.
type GormTransactor struct {
	persistence.Transactor
	persistence.FaultJudge
	persistence.TransactionLimit

	store *sqlstore.Store
}

// NewGormTransactor returns the transactor of a database.
func NewGormTransactor(db *gorm.DB) *GormTransactor {
	s := newStore(db, nil)
	return &GormTransactor{s, s, s, s}
}

// Chain implements [persistence.Chainer], for dispatchers.
func (t *GormTransactor) Chain(of persistence.Transactor) persistence.Chain {
	return t.store.Chain(t, of)
}

// GormOutboxStore is the outbox table, with the dedup keys of its events.
type GormOutboxStore struct {
	persistence.OutboxStore
	persistence.CommitObserver
	persistence.DedupStore
	persistence.OutboxInspector
}

// NewGormOutboxStore returns the outbox table of a database.
func NewGormOutboxStore(db *gorm.DB, opts ...Option) *GormOutboxStore {
	s := newStore(db, opts)
	return &GormOutboxStore{s, s, s, s}
}

// GormOutboxCursorStore is the dispatchers' sidecar, and the operator's view of
// it.
type GormOutboxCursorStore struct {
	persistence.OutboxCursorStore
	persistence.CursorAdmin
	persistence.StatusReader
}

// NewGormOutboxCursorStore returns the dispatchers' sidecar in a database.
func NewGormOutboxCursorStore(db *gorm.DB, opts ...Option) *GormOutboxCursorStore {
	s := newStore(db, opts)
	return &GormOutboxCursorStore{s, s, s}
}

// GormIdempotencyStore is the table of markers.
type GormIdempotencyStore struct {
	persistence.IdempotencyStore
}

// NewGormIdempotencyStore returns the table of markers of a database.
func NewGormIdempotencyStore(db *gorm.DB, opts ...Option) *GormIdempotencyStore {
	s := newStore(db, opts)
	return &GormIdempotencyStore{s}
}

func newStore(db *gorm.DB, opts []Option) *sqlstore.Store {
	pool, dialect, err := open(db)
	if err != nil {
		return sqlstore.New(sqlstore.Config{Invalid: err})
	}
	transactions := stdsql.NewTransactions(pool, dialect)
	begin := func(p stdsql.Pipeline) stdsql.Beginner {
		return func(ctx context.Context) (persistence.Tx, error) {
			t, err := transactions.Begin(ctx, p)
			if err != nil {
				return nil, err
			}
			return newTx(t, db, pool), nil
		}
	}
	cfg := face.New("gormtx", opts)
	face.Pipelined(stdpgx.Pipeline{})(&cfg)
	return stdsql.NewStore(cfg.Store(dialect), pool, begin(nil), begin(cfg.Pipeline(dialect)))
}

// open finds the pool and the dialect under db.
func open(db *gorm.DB) (*sql.DB, *sqlstore.Dialect, error) {
	if db == nil {
		return nil, nil, fmt.Errorf("gormtx: %w: the *gorm.DB is nil", persistence.ErrInvalid)
	}
	if db.Config == nil {
		return nil, nil, fmt.Errorf("gormtx: %w: the *gorm.DB was not opened", persistence.ErrInvalid)
	}
	if db.Error != nil {
		return nil, nil, fmt.Errorf("gormtx: the *gorm.DB carries an error: %w", db.Error)
	}
	pool, err := poolOf(db)
	if err != nil {
		return nil, nil, err
	}
	dialect := face.Dialect(db.Name())
	if dialect == nil {
		return nil, nil, fmt.Errorf("gormtx: %w: no support for the database %q", persistence.ErrInvalid, db.Name())
	}
	return pool, dialect, nil
}
