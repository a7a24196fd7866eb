package matrix

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"maps"
	"sync"
	"testing"

	mysqldriver "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"
	"gorm.io/driver/mysql"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
)

// tap is a way to a server on which every statement is counted, and may be
// changed. BEGIN, COMMIT and ROLLBACK are statements, too.
type tap struct {
	driver.Connector
	// rewrite returns what the texts of a new connection pass through, before
	// they are sent.
	rewrite func() func(text string) string

	mu     sync.Mutex
	counts map[string]int // by the text before it was changed
}

func unchanged() func(string) string { return func(text string) string { return text } }

// openTapped connects GORM. A statement with arguments is one statement: none is
// prepared first.
func openTapped(t *testing.T, s Server, dsn string, rewrite func() func(string) string) (*gorm.DB, *tap) {
	t.Helper()
	tap := &tap{rewrite: rewrite, counts: map[string]int{}}
	var dialector gorm.Dialector
	if s.Schemas {
		config, err := pgx.ParseConfig(dsn)
		require.NoError(t, err)
		tap.Connector = stdlib.GetConnector(*config)
		dialector = postgres.New(postgres.Config{Conn: sql.OpenDB(tap)})
	} else {
		config, err := mysqldriver.ParseDSN(dsn)
		require.NoError(t, err)
		config.InterpolateParams = true
		tap.Connector, err = mysqldriver.NewConnector(config)
		require.NoError(t, err)
		dialector = mysql.New(mysql.Config{Conn: sql.OpenDB(tap)})
	}
	db := Open(t, dialector, &gorm.Config{Logger: logger.Discard})
	pool, err := db.DB()
	require.NoError(t, err)
	pool.SetMaxIdleConns(20) // rather than connect again and again
	return db, tap
}

// take returns what was counted since it was last asked.
func (p *tap) take() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	counts := maps.Clone(p.counts)
	clear(p.counts)
	return counts
}

func (p *tap) count(text string, err error) {
	if errors.Is(err, driver.ErrSkip) { // another method is tried
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.counts[text]++
}

func (p *tap) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := p.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &tapped{conn.(session), p, p.rewrite()}, nil
}

// session is what the drivers' connections have in common.
type session interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.Pinger
	driver.NamedValueChecker
	driver.SessionResetter
}

type tapped struct {
	session
	tap     *tap
	rewrite func(string) string
}

func (c *tapped) IsValid() bool {
	v, ok := c.session.(driver.Validator)
	return !ok || v.IsValid()
}

func (c *tapped) PrepareContext(ctx context.Context, text string) (driver.Stmt, error) {
	stmt, err := c.session.PrepareContext(ctx, c.rewrite(text))
	c.tap.count(text, err)
	return stmt, err
}

func (c *tapped) ExecContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Result, error) {
	result, err := c.session.ExecContext(ctx, c.rewrite(text), args)
	c.tap.count(text, err)
	return result, err
}

func (c *tapped) QueryContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Rows, error) {
	rows, err := c.session.QueryContext(ctx, c.rewrite(text), args)
	c.tap.count(text, err)
	return rows, err
}

func (c *tapped) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	c.rewrite("BEGIN")
	tx, err := c.session.BeginTx(ctx, opts)
	c.tap.count("BEGIN", err)
	return tappedTx{tx, c}, err
}

type tappedTx struct {
	driver.Tx
	conn *tapped
}

func (t tappedTx) Commit() error {
	t.conn.rewrite("COMMIT")
	err := t.Tx.Commit()
	t.conn.tap.count("COMMIT", err)
	return err
}

func (t tappedTx) Rollback() error {
	t.conn.rewrite("ROLLBACK")
	err := t.Tx.Rollback()
	t.conn.tap.count("ROLLBACK", err)
	return err
}
