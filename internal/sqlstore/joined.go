package sqlstore

import (
	"context"
	"fmt"

	"github.com/onward-go/outbox/persistence"
)

// joined is the transaction of a context, which may have ended without our
// notice: by its owner, by a lost connection, or by a failed statement that
// the caller swallowed. What the server says of it then is ErrNoTransaction.
type joined struct {
	Conn
	dialect *Dialect
}

func (j joined) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	n, err := j.Conn.Exec(ctx, query, args...)
	return n, j.endedBefore(err)
}

func (j joined) Query(ctx context.Context, query string, args []any, row func(func(...any) error) error) error {
	return j.endedBefore(j.Conn.Query(ctx, query, args, row))
}

func (j joined) endedBefore(err error) error {
	if err != nil && (j.dialect.gone(err) || sqlState(err) == "25P02") { // in failed transaction
		return fmt.Errorf("%w: it has ended, or an earlier statement of it has failed: %w", persistence.ErrNoTransaction, err)
	}
	return err
}
