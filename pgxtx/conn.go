package pgxtx

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// farewell is how long a connection may take to close.
const farewell = 2 * time.Second

// statements is what runs statements: a pool, a connection of one, a transaction.
type statements interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// sqlConn is a sqlstore.Conn.
type sqlConn struct{ statements statements }

// Exec implements sqlstore.Conn.
func (c sqlConn) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	tag, err := c.statements.Exec(ctx, query, args...)
	return tag.RowsAffected(), err
}

// Query implements sqlstore.Conn.
func (c sqlConn) Query(ctx context.Context, query string, args []any, row func(func(...any) error) error) error {
	rows, err := c.statements.Query(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := row(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

// session is a sqlstore.Session: a connection taken out of the pool.
type session struct {
	sqlConn
	taken *pgxpool.Conn
}

func openSession(ctx context.Context, pool *pgxpool.Pool) (*session, error) {
	taken, err := pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	return &session{sqlConn{taken}, taken}, nil
}

// Close implements sqlstore.Session. The pool does not take back what is closed.
func (s *session) Close() error {
	defer s.taken.Release()
	return closeConn(s.taken.Conn())
}

// closeConn closes a connection, and waits until nothing of it is left.
func closeConn(conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(context.Background(), farewell)
	defer cancel()
	err := conn.Close(ctx)
	select {
	case <-conn.PgConn().CleanupDone():
	case <-ctx.Done():
	}
	return err
}
