package sqlstore

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/onward-go/outbox/persistence"
	"github.com/onward-go/outbox/schema"
)

// Config is what a face brings.
type Config struct {
	// Database identifies the database to persistence.Atomically.
	Database any
	Dialect  *Dialect
	Naming   schema.Naming
	// MaxPayload is the greatest payload in bytes.
	MaxPayload int
	// AsynchronousCommit lets transactions with markers commit before they are on
	// disk.
	AsynchronousCommit bool
	// BreakingMigrations lets Migrate apply what the release before cannot live with.
	BreakingMigrations bool
	// Migrations are those that Migrate applies, nil for those of package schema.
	Migrations []schema.Migration
	// Pool runs statements outside of any transaction.
	Pool Conn
	// MaxConnections returns how many connections the pool has at most; 0 is no
	// limit.
	MaxConnections func() int
	// Begin opens a transaction. What it returns is a Conn, too.
	Begin func(context.Context) (persistence.Tx, error)
	// BeginChained opens one that another may follow; nil is Begin.
	BeginChained func(context.Context) (persistence.Tx, error)
	// Session opens a connection of its own.
	Session func(context.Context) (Session, error)
	// Invalid is what is wrong with the face's options. Constructors return one
	// value, so it is returned by every call.
	Invalid error
}

// Store implements the contracts of package persistence on a SQL database. It
// is safe for concurrent use.
type Store struct {
	cfg Config
	// migrations are what makes the tables.
	migrations []schema.Migration
	sql        statements // with the names filled in
	table      string     // the outbox, for messages
	mark       markReader
	checked    atomic.Bool
	// shown says that the tables have been found to show all of their rows.
	shown atomic.Bool
	// tornViews is known, like all of the server, once that is checked.
	tornViews atomic.Bool
	// losesCommits is known once a marker has found it: see mysqlIsDurable.
	losesCommits atomic.Bool
	// sessionIdleLimit is how long a transaction of the pool's may stand idle, a
	// time.Duration, 0 for ever.
	sessionIdleLimit atomic.Int64
}

var (
	_ persistence.Transactor        = (*Store)(nil)
	_ persistence.TransactionLimit  = (*Store)(nil)
	_ persistence.OutboxStore       = (*Store)(nil)
	_ persistence.CommitObserver    = (*Store)(nil)
	_ persistence.OutboxCursorStore = (*Store)(nil)
	_ persistence.CursorAdmin       = (*Store)(nil)
	_ persistence.IdempotencyStore  = (*Store)(nil)
	_ persistence.DeadLetterStore   = (*Store)(nil)
	_ persistence.OutboxRetention   = (*Store)(nil)
	_ persistence.DedupStore        = (*Store)(nil)
	_ persistence.FaultJudge        = (*Store)(nil)
	_ persistence.OutboxInspector   = (*Store)(nil)
	_ persistence.StatusReader      = (*Store)(nil)
	_ persistence.Validator         = (*Store)(nil)
)

// New returns a store. It does not touch the database.
func New(cfg Config) *Store {
	s := &Store{cfg: cfg, table: cfg.Naming.Outbox()}
	if s.cfg.Invalid == nil {
		s.cfg.Invalid = s.checkConfig()
	}
	if s.migrations = cfg.Migrations; s.migrations == nil && s.cfg.Invalid == nil {
		s.migrations, s.cfg.Invalid = schema.Render(cfg.Dialect.Name, cfg.Naming)
	}
	if s.cfg.Invalid == nil {
		s.sql = cfg.Dialect.statements.expand(cfg.Naming)
		s.mark = cfg.Dialect.newSafeMark()
		s.cfg.Pool = s.wrapped(cfg.Pool)
	}
	return s
}

func (s *Store) checkConfig() error {
	if err := s.cfg.Naming.Check(s.cfg.Dialect.Name); err != nil {
		return err
	}
	if s.cfg.MaxPayload < 1 {
		return fmt.Errorf("outbox table %s: %w: the payload limit is %d bytes, it must be at least 1", s.table, persistence.ErrInvalid, s.cfg.MaxPayload)
	}
	if s.cfg.AsynchronousCommit && !s.cfg.Dialect.setsTransaction {
		return fmt.Errorf("outbox table %s: %w: this database has no asynchronous commit of single transactions, PostgreSQL has", s.table, persistence.ErrInvalid)
	}
	return nil
}

// Invalid returns what is wrong with the configuration, or nil.
func (s *Store) Invalid() error { return s.cfg.Invalid }

// Atomically implements persistence.Transactor.
func (s *Store) Atomically(ctx context.Context, fn func(ctx context.Context) error) error {
	if s.cfg.Invalid != nil {
		return s.cfg.Invalid
	}
	return s.judged(persistence.Atomically(ctx, s.cfg.Database, s.cfg.Begin, fn))
}

// AfterCommit implements persistence.CommitObserver.
func (s *Store) AfterCommit(ctx context.Context, fn func(ctx context.Context)) error {
	return persistence.AfterCommitOf(ctx, s.cfg.Database, fn)
}

// Chain is that of a face, whose transactor is self.
func (s *Store) Chain(self, of persistence.Transactor) persistence.Chain {
	if of != self {
		return nil
	}
	begin := s.cfg.Begin
	if s.cfg.BeginChained != nil {
		begin = s.cfg.BeginChained
	}
	if s.cfg.Invalid != nil {
		begin = func(context.Context) (persistence.Tx, error) { return nil, s.cfg.Invalid }
	}
	return judgedChain{persistence.NewChain(s.cfg.Database, begin), s}
}

// MaxTransactions implements persistence.TransactionLimit.
func (s *Store) MaxTransactions() int {
	switch {
	case s.cfg.Invalid != nil:
		return 0
	case s.cfg.Dialect.OneWriter:
		return 1
	}
	return s.cfg.MaxConnections()
}

// transaction runs fn in a transaction of its own, whatever ctx carries.
func (s *Store) transaction(ctx context.Context, fn func(ctx context.Context, conn Conn) error) error {
	return s.Atomically(persistence.Detach(ctx), func(ctx context.Context) error {
		tx, err := persistence.Current(ctx, s.cfg.Database)
		if err != nil {
			return err
		}
		return fn(ctx, s.wrapped(tx.(Conn)))
	})
}

func (s *Store) wrapped(conn Conn) Conn {
	if s.cfg.Dialect.wrap == nil {
		return conn
	}
	return s.cfg.Dialect.wrap(conn)
}

// tx returns the transaction that ctx carries.
func (s *Store) tx(ctx context.Context) (Conn, error) {
	if s.cfg.Invalid != nil {
		return nil, s.cfg.Invalid
	}
	tx, err := persistence.Current(ctx, s.cfg.Database)
	if err != nil {
		return nil, fmt.Errorf("outbox table %s: %w", s.table, err)
	}
	conn := joined{s.wrapped(tx.(Conn)), s.cfg.Dialect}
	if err := s.check(ctx, conn, ofNone); err != nil {
		return nil, err
	}
	return conn, nil
}

type access bool

const (
	reading access = false
	writing access = true
)

// pool returns the pool, which takes no part in a transaction that ctx
// carries. Where that transaction would make it wait for ever, it refuses.
func (s *Store) pool(ctx context.Context, a access) (Conn, error) {
	conn, err := s.unchecked(ctx, a)
	if err != nil {
		return nil, err
	}
	if err := s.check(ctx, conn, ofParent); err != nil {
		return nil, err
	}
	return conn, nil
}

// unchecked is the pool, whatever server and tables there are.
func (s *Store) unchecked(ctx context.Context, a access) (Conn, error) {
	if s.cfg.Invalid != nil {
		return nil, s.cfg.Invalid
	}
	if persistence.Holds(ctx, s.cfg.Database) {
		if s.cfg.MaxConnections() == 1 {
			return nil, fmt.Errorf("outbox table %s: %w, which holds the pool's only connection: call it after the transaction, or give the pool a second connection", s.table, persistence.ErrInTransaction)
		}
		if a == writing && s.cfg.Dialect.OneWriter {
			return nil, fmt.Errorf("outbox table %s: %w, which holds the database's write lock: call it after the transaction", s.table, persistence.ErrInTransaction)
		}
	}
	return s.cfg.Pool, nil
}

// check makes sure, once, that server and tables are what the statements
// expect.
func (s *Store) check(ctx context.Context, conn Conn, h hidden) error {
	if s.checked.Load() && (h == ofNone || s.shown.Load()) {
		return nil
	}
	if err := s.checkServer(ctx, conn); err != nil {
		return err
	}
	if err := s.checkTables(ctx, conn, h); err != nil {
		return err
	}
	if err := s.checkSchema(ctx, conn); err != nil {
		return err
	}
	if err := s.readIdleLimit(ctx, conn); err != nil {
		return err
	}
	s.checked.Store(true)
	s.shown.Store(h != ofNone || s.shown.Load())
	return nil
}

// readIdleLimit notes how long a transaction may stand idle in a session as it begins.
func (s *Store) readIdleLimit(ctx context.Context, conn Conn) error {
	if s.sql.SessionIdleLimit == "" {
		return nil
	}
	err := conn.Query(ctx, s.sql.SessionIdleLimit, nil, func(scan func(...any) error) error {
		var ms string
		if err := scan(&ms); err != nil {
			return err
		}
		n, err := strconv.Atoi(ms)
		s.sessionIdleLimit.Store(int64(time.Duration(n) * time.Millisecond))
		return err
	})
	return s.failed(err, "read the session's idle limit")
}

// checkServer makes sure that the server can keep the promises.
func (s *Store) checkServer(ctx context.Context, conn Conn) error {
	server, err := s.cfg.Dialect.checkServer(ctx, conn)
	if server.tearsViews() {
		s.tornViews.Store(true)
	}
	return s.failed(err, "check the server")
}

// failed says what failed, on which table.
func (s *Store) failed(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("outbox table %s: %s: %w", s.table, fmt.Sprintf(format, args...), s.cfg.Dialect.advised(err))
}

// exists reports whether the query yields a row.
func exists(ctx context.Context, conn Conn, query string, args ...any) (bool, error) {
	found := false
	err := conn.Query(ctx, query, args, func(scan func(...any) error) error {
		found = true
		return scan(new(int64))
	})
	return found, err
}
