package stdsql

import (
	"context"
	"database/sql"
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

// OneConnection reports whether the pool is limited to a single connection.
func (p Pool) OneConnection() bool { return p.DB.Stats().MaxOpenConnections == 1 }

func exec(ctx context.Context, s Statements, query string, args ...any) (int64, error) {
	result, err := s.ExecContext(ctx, query, args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

func forEachRow(ctx context.Context, s Statements, query string, args []any, row func(func(...any) error) error) (err error) {
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
