package sqlstore

import "context"

// Conn runs statements: on a pool, each in a transaction of its own, or in an
// open transaction. The transaction handle that a face gives to
// persistence.Atomically is a Conn, too.
type Conn interface {
	// Exec runs a statement and returns the number of rows it affected.
	Exec(ctx context.Context, query string, args ...any) (int64, error)

	// Query runs a statement and calls row for each row of its result, with a
	// function that reads the columns. It closes the result, and returns row's
	// error, which ends the iteration, or the result's.
	Query(ctx context.Context, query string, args []any, row func(scan func(dest ...any) error) error) error
}

// Session is a connection outside of any transaction, with settings of its own.
type Session interface {
	Conn
	// Close discards the connection, and its settings and locks with it.
	Close() error
}
