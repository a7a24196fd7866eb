package pgxtx

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onward-go/outbox/internal/usercode"
	"github.com/onward-go/outbox/persistence"
)

const (
	// firstPause and longestPause are those before another attempt to connect.
	firstPause   = 50 * time.Millisecond
	longestPause = 10 * time.Second
	// connectTimeout is how long one attempt may take.
	connectTimeout = 30 * time.Second
)

// Listen calls wake, which is a dispatcher's Wake, for each notification of a
// [Notifier] of the same outbox, in whatever process. It blocks until ctx is
// cancelled, and then returns nil; the caller owns the goroutine. While nothing is
// notified it sends nothing.
//
// It makes a connection of its own, as the pool makes them but outside of its
// limit, without AfterConnect. When that is lost it connects again, after a pause
// that grows from 50 ms to 10 s while it cannot. It calls wake after each connect,
// for what was missed meanwhile. A connection that dies without a word is noticed by
// the keepalive of TCP. What goes wrong is passed to [WithErrorHandler].
//
// The connection has to be a session of the primary. Behind a pooler that hands
// out server connections for one transaction at a time it would hear nothing, so
// there the pool has to be another one, that leads around the pooler. Such a pool
// may be idle otherwise.
//
// It returns an error, [persistence.ErrInvalid], only for what is wrong with its
// arguments and options, and [persistence.ErrInTransaction] if ctx carries a
// transaction.
func Listen(ctx context.Context, pool *pgxpool.Pool, wake func(), opts ...WakeOption) error {
	l := listener{newWaking(pool, opts), wake}
	switch {
	case l.invalid != nil:
		return l.invalid
	case wake == nil:
		return l.failed(fmt.Errorf("%w: the function to wake is nil", persistence.ErrInvalid), "listen")
	case persistence.InTransaction(ctx):
		return l.failed(fmt.Errorf("%w: call Listen outside of it", persistence.ErrInTransaction), "listen")
	}
	defer l.calls.Drain(usercode.Patience)
	for pause := firstPause; ctx.Err() == nil; pause = min(2*pause, longestPause) {
		heard, err := l.session(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if heard {
			pause = firstPause
		}
		l.onError(l.failed(err, "listen"))
		select {
		case <-ctx.Done():
		case <-time.After(pause/2 + rand.N(pause/2)): // so that replicas do not come all at once
		}
	}
	return nil
}

// listener is one call of Listen.
type listener struct {
	waking
	wake func()
}

// session listens on one connection until that is lost or ctx ends. It reports
// whether there was one to listen on.
func (l listener) session(ctx context.Context) (heard bool, err error) {
	conn, err := l.connect(ctx)
	if err != nil {
		return false, err
	}
	defer closeConn(conn)
	for {
		l.wake()
		if _, err := conn.WaitForNotification(ctx); err != nil {
			return true, err
		}
	}
}

// connect returns a connection that listens.
func (l listener) connect(ctx context.Context) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	config := l.pool.Config()
	config.ConnConfig.OnNotification = nil // the user's would take them all
	if config.BeforeConnect != nil {
		if err := config.BeforeConnect(ctx, config.ConnConfig); err != nil {
			return nil, err
		}
	}
	conn, err := pgx.ConnectConfig(ctx, config.ConnConfig)
	if err != nil {
		return nil, err
	}
	if _, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{l.channel}.Sanitize()); err != nil {
		_ = closeConn(conn)
		return nil, err
	}
	return conn, nil
}
