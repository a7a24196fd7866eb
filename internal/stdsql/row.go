package stdsql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"io"
	"sync"

	"github.com/onward-go/outbox/persistence"
)

// Nobody but database/sql can make a *sql.Row or a *sql.Stmt. So where one has
// to stand for rows that are there, or for an error, it is made by a pool that
// has no database: it answers with what the context says.

type outcome struct {
	rows *sql.Rows
	err  error
}

type outcomeKey struct{}

var answers = sync.OnceValue(func() *sql.DB { return sql.OpenDB(answering{}) })

// rowOf returns the first of the rows, or the error. The rows, which are those of
// ctx, are closed when it is scanned, or ctx ends.
func rowOf(ctx context.Context, rows *sql.Rows, err error) *sql.Row {
	if err != nil {
		ctx = context.WithoutCancel(ctx)
	}
	return answers().QueryRowContext(context.WithValue(ctx, outcomeKey{}, outcome{rows, err}), "")
}

// refusedStmt returns a statement that fails. There is one: what nobody closes
// would stay.
var refusedStmt = sync.OnceValue(func() *sql.Stmt {
	stmt, err := answers().PrepareContext(context.Background(), "")
	if err != nil {
		panic(err) // answering cannot fail to prepare
	}
	return stmt
})

// answering is the driver, a connection and a statement of the pool.
type answering struct{}

var _ driver.QueryerContext = answering{}

func (answering) QueryContext(ctx context.Context, _ string, _ []driver.NamedValue) (driver.Rows, error) {
	o, _ := ctx.Value(outcomeKey{}).(outcome)
	if o.err != nil {
		return nil, o.err
	}
	columns, err := o.rows.Columns()
	return passed{o.rows, columns}, err
}

func (a answering) Connect(context.Context) (driver.Conn, error) { return a, nil }
func (a answering) Driver() driver.Driver                        { return a }
func (a answering) Open(string) (driver.Conn, error)             { return a, nil }
func (a answering) Prepare(string) (driver.Stmt, error)          { return a, nil }
func (a answering) Begin() (driver.Tx, error)                    { return nil, errRefused() }
func (answering) NumInput() int                                  { return -1 }
func (answering) Exec([]driver.Value) (driver.Result, error)     { return nil, errRefused() }
func (answering) Query([]driver.Value) (driver.Rows, error)      { return nil, errRefused() }
func (answering) Close() error                                   { return nil }

func errRefused() error {
	return fmt.Errorf("%w: the statement's transaction has ended, or lets none run that was prepared before", persistence.ErrNoTransaction)
}

// passed passes rows on.
type passed struct {
	*sql.Rows
	columns []string
}

func (p passed) Columns() []string { return p.columns }

func (p passed) Next(dest []driver.Value) error {
	if !p.Rows.Next() {
		if err := p.Rows.Err(); err != nil {
			return err
		}
		return io.EOF
	}
	values, targets := make([]any, len(dest)), make([]any, len(dest))
	for i := range values {
		targets[i] = &values[i]
	}
	if err := p.Rows.Scan(targets...); err != nil {
		return err
	}
	for i, v := range values {
		dest[i] = v
	}
	return nil
}
