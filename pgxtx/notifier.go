package pgxtx

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onward-go/outbox/internal/usercode"
)

const (
	// apart is how long a notification holds back the next one.
	apart = 5 * time.Millisecond
	// notifyTimeout is how long one may take, with the wait for a connection.
	notifyTimeout = 10 * time.Second
)

// Notifier tells the processes that [Listen] that events have been committed. It
// is safe for concurrent use. Make one a process, and close it at the end.
type Notifier struct {
	waking
	closing chan struct{}

	mu      sync.Mutex
	pending bool               // nobody has been told yet
	closed  bool               // nobody will be told
	running bool               // a goroutine tells
	ended   chan struct{}      // closes when the last one that told has ended
	abort   context.CancelFunc // ends it at once
}

// NewNotifier returns a notifier for the outbox of a database, over the pool that
// publishes or another one of that database. It does not touch the database. What
// is wrong with its options is passed to [WithErrorHandler], and is returned by
// Close.
func NewNotifier(pool *pgxpool.Pool, opts ...WakeOption) *Notifier {
	return &Notifier{waking: newWaking(pool, opts), closing: make(chan struct{})}
}

// Notify tells that events have been committed; pass it to events.WithNotify. It
// never blocks. The first call sends a notification at once, on a connection of
// the pool, and those of the next 5 ms are one notification after that; while
// nobody calls, nothing is sent. After Close it does nothing.
//
// It has to be called after the commit. A notification inside of the transaction
// would have all commits that notify wait for each other, over all databases of
// the server.
func (n *Notifier) Notify() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return
	}
	n.pending = true
	if n.running {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	n.running, n.ended, n.abort = true, make(chan struct{}), cancel
	go n.run(ctx, cancel, n.ended)
}

// Close sends what has not been sent yet and ends the notifier. If ctx ends before
// that, it gives up and returns its cause. Call it before the pool's Close. It may
// be called more than once.
func (n *Notifier) Close(ctx context.Context) error {
	n.mu.Lock()
	if !n.closed {
		n.closed = true
		close(n.closing)
	}
	ended, abort := n.ended, n.abort
	n.mu.Unlock()
	if ended == nil {
		return n.invalid
	}
	defer n.calls.Drain(usercode.Patience)
	select {
	case <-ended:
		return n.invalid
	case <-ctx.Done():
		abort()
		<-ended
		return errors.Join(n.invalid, context.Cause(ctx))
	}
}

// run tells until there is nothing to tell.
func (n *Notifier) run(ctx context.Context, cancel context.CancelFunc, ended chan<- struct{}) {
	defer close(ended)
	defer cancel()
	for n.take() {
		if err := n.send(ctx); err != nil && ctx.Err() == nil {
			n.onError(n.failed(err, "notify"))
		}
		select {
		case <-time.After(apart):
		case <-n.closing:
		}
	}
}

// take reports whether there is something to tell. If not, whoever has something
// later has to run another goroutine.
func (n *Notifier) take() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	pending := n.pending
	n.pending, n.running = false, pending
	return pending
}

// send notifies once. PostgreSQL has one such transaction after the other commit,
// so this one does not wait for the disk: what it tells of is there already.
func (n *Notifier) send(ctx context.Context) error {
	if n.invalid != nil {
		return n.invalid
	}
	ctx, cancel := context.WithTimeout(ctx, notifyTimeout)
	defer cancel()
	_, err := n.pool.Exec(ctx, "SELECT set_config('synchronous_commit', 'off', true), pg_notify($1::text, '')", n.channel)
	return err
}
