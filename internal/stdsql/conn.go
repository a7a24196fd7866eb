package stdsql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
)

// Statements is what runs statements: *sql.DB, *sql.Conn, *sql.Tx and what
// other libraries wrap around them.
type Statements interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// Pool is a sqlstore.Conn over a pool of connections.
type Pool struct{ DB *sql.DB }

// Exec implements sqlstore.Conn.
func (p Pool) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	return exec(ctx, p.DB, query, args...)
}

// Query implements sqlstore.Conn.
func (p Pool) Query(ctx context.Context, query string, args []any, row func(func(...any) error) error) error {
	return forEachRow(ctx, p.DB, query, args, row)
}

// MaxConnections returns how many connections the pool has at most; 0 is no
// limit.
func (p Pool) MaxConnections() int { return p.DB.Stats().MaxOpenConnections }

// Session is a sqlstore.Session: a connection taken out of the pool.
type Session struct{ conn *sql.Conn }

// OpenSession takes a connection out of the pool.
func OpenSession(ctx context.Context, db *sql.DB) (*Session, error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	return &Session{conn}, nil
}

// Exec implements sqlstore.Conn.
func (s *Session) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	return exec(ctx, s.conn, query, args...)
}

// Query implements sqlstore.Conn.
func (s *Session) Query(ctx context.Context, query string, args []any, row func(func(...any) error) error) error {
	return forEachRow(ctx, s.conn, query, args, row)
}

// Close implements sqlstore.Session.
func (s *Session) Close() error {
	discard(s.conn)
	if err := s.conn.Close(); !errors.Is(err, sql.ErrConnDone) {
		return err
	}
	return nil
}

// discard closes a connection so that it does not go back to the pool.
func discard(conn *sql.Conn) {
	_ = conn.Raw(func(any) error { return driver.ErrBadConn })
}

// raw runs a function with the driver's connection, whatever its error means for that.
// Lost is why there is none.
func raw(conn *sql.Conn, fn func(driverConn any) error) (lost, err error) {
	lost = conn.Raw(func(driverConn any) error {
		err = fn(driverConn)
		return nil
	})
	return lost, err
}

func exec(ctx context.Context, s Statements, query string, args ...any) (int64, error) {
	result, err := s.ExecContext(ctx, query, args...)
	return affected(ctx, result, err)
}

// affected returns how many rows a statement has affected.
func affected(ctx context.Context, result sql.Result, err error) (int64, error) {
	if err != nil {
		return 0, cancelled(ctx, err)
	}
	return result.RowsAffected()
}

// cancelled says that the context has ended, where a driver tells only what the
// server said then, as lib/pq does.
func cancelled(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil || errors.Is(err, ctx.Err()) {
		return err
	}
	return fmt.Errorf("%w: %w", ctx.Err(), err)
}

func forEachRow(ctx context.Context, s Statements, query string, args []any, row func(func(...any) error) error) (err error) {
	defer func() { err = cancelled(ctx, err) }()
	rows, err := s.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer func() {
		if closeErr := rows.Close(); err == nil {
			err = closeErr
		}
	}()
	for rows.Next() {
		if err := row(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}
