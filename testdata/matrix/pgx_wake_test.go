package matrix

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/persistence"
	"github.com/onward-go/outbox/pgxtx"
	"github.com/onward-go/outbox/testdata/servers"
)

// soon is far more than anything takes that is awaited here.
const soon = 30 * time.Second

// statements counts what pgx sends, by its text.
type statements struct {
	mu   sync.Mutex
	sent map[string]int
}

func (s *statements) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sent == nil {
		s.sent = map[string]int{}
	}
	s.sent[data.SQL]++
	return ctx
}

func (s *statements) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// count returns how many statements have a text in them, "" those of all.
func (s *statements) count(text string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for sql, times := range s.sent {
		if strings.Contains(sql, text) {
			n += times
		}
	}
	return n
}

// listening is a process that listens.
type listening struct {
	t     testing.TB
	woken chan struct{}
	errs  chan error
	stop  func() error
}

func listen(t testing.TB, pool *pgxpool.Pool, opts ...pgxtx.WakeOption) listening {
	t.Helper()
	l := listening{t: t, woken: make(chan struct{}, 1000), errs: make(chan error, 1000)}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	opts = append(opts, pgxtx.WithErrorHandler(func(err error) { l.errs <- err }))
	go func() { ended <- pgxtx.Listen(ctx, pool, func() { l.woken <- struct{}{} }, opts...) }()
	l.stop = sync.OnceValue(func() error { cancel(); return <-ended })
	t.Cleanup(func() { require.NoError(t, l.stop()) })
	l.wantWake() // it has connected
	return l
}

func (l listening) wantWake() {
	l.t.Helper()
	select {
	case <-l.woken:
	case <-time.After(soon):
		require.FailNow(l.t, "nobody was woken")
	}
}

// listeners returns the sessions that listen in this database.
func listeners(t testing.TB, pool *pgxpool.Pool) []uint32 {
	t.Helper()
	rows, err := pool.Query(t.Context(), "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%'")
	require.NoError(t, err)
	pids, err := pgx.CollectRows(rows, pgx.RowTo[uint32])
	require.NoError(t, err)
	return pids
}

// running reports whether a goroutine is in a function of pgxtx.
func running(function string) bool {
	buffer := make([]byte, 1<<20)
	return bytes.Contains(buffer[:runtime.Stack(buffer, true)], []byte("outbox/pgxtx."+function))
}

// The dispatcher of one process hears of what another one commits, long before
// it would look.
func TestACommitWakesTheDispatcherOfAnotherProcess(t *testing.T) {
	t.Parallel()
	dsn := PostgresDSN(t)
	here, outbox := newPgx(t, pgxConfig(t, dsn))
	there := openPgx(t, pgxConfig(t, dsn))
	dispatching := pgxtx.New(there)
	d := events.NewDispatcher(dispatching, dispatching, dispatching, dispatching)
	delivered := make(chan string, 10)
	require.NoError(t, d.Subscribe("t", "h", func(ctx context.Context, evt events.Event) error {
		return persistence.AfterCommit(ctx, func(context.Context) { delivered <- evt.ID })
	}))
	ctx, cancel := context.WithCancel(t.Context())
	var ends sync.WaitGroup
	defer ends.Wait()
	defer cancel()
	ends.Go(func() { _ = d.Poll(ctx, time.Hour, 100, func(err error) { t.Error(err) }) })
	connected := make(chan struct{}, 1)
	ends.Go(func() {
		_ = pgxtx.Listen(ctx, there, func() {
			d.Wake()
			select {
			case connected <- struct{}{}:
			default:
			}
		})
	})
	<-connected
	notifier := pgxtx.NewNotifier(here, pgxtx.WithErrorHandler(func(err error) { t.Error(err) }))
	publisher := events.NewPublisher(outbox, events.WithNotify(notifier.Notify))
	for i := range 3 {
		id := fmt.Sprint(i)
		require.NoError(t, outbox.Atomically(t.Context(), func(ctx context.Context) error { return publisher.Publish(ctx, pgxEvent(id)) }))
		select {
		case got := <-delivered:
			require.Equal(t, id, got)
		case <-time.After(soon):
			require.FailNow(t, "nobody was woken")
		}
	}
	require.NoError(t, notifier.Close(t.Context()))
}

func TestAListenerThatLostItsSessionConnectsAgain(t *testing.T) {
	t.Parallel()
	pool := openPgx(t, pgxConfig(t, PostgresDSN(t)))
	l := listen(t, pool)
	notifier := pgxtx.NewNotifier(pool)
	for range 3 {
		pids := listeners(t, pool)
		require.Len(t, pids, 1)
		_, err := pool.Exec(t.Context(), "SELECT pg_terminate_backend($1, 10000)", pids[0])
		require.NoError(t, err)
		l.wantWake() // for what it has missed
		err = <-l.errs
		require.ErrorContains(t, err, "outbox table outbox: listen: ")
		require.Equal(t, "57P01", errorCode(err))
		notifier.Notify()
		l.wantWake()
	}
	require.NoError(t, notifier.Close(t.Context()))
	require.NoError(t, l.stop())
	require.Empty(t, l.errs)
}

func errorCode(err error) string {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return e.Code
	}
	return ""
}

// A server that is not there is tried again, and an end does not wait for it.
func TestAListenerWithoutAServerEndsWithItsContext(t *testing.T) {
	t.Parallel()
	config := pgxConfig(t, "postgres://nobody@127.0.0.1:1/none")
	ctx, cancel := context.WithCancel(t.Context())
	tries := 0
	require.NoError(t, pgxtx.Listen(ctx, openPgx(t, config), func() { t.Error("woken") }, pgxtx.WithErrorHandler(func(err error) {
		if tries++; tries == 3 {
			cancel()
		}
	})))
	require.Equal(t, 3, tries)
}

// Nobody sends anything while there is nothing to tell, and nothing stays.
func TestNotificationsCostNothingWhileIdle(t *testing.T) {
	config := pgxConfig(t, PostgresDSN(t))
	var sent statements
	config.ConnConfig.Tracer = &sent
	// A user's own handler does not take the notifications away.
	config.ConnConfig.OnNotification = func(*pgconn.PgConn, *pgconn.Notification) { t.Error("taken away") }
	pool := openPgx(t, config)
	l := listen(t, pool)
	notifier := pgxtx.NewNotifier(pool)
	const notified = 5
	for range notified {
		notifier.Notify()
		l.wantWake()
	}
	idle := time.After(300 * time.Millisecond)
	select {
	case <-l.woken:
		t.Error("woken for nothing")
	case <-idle:
	}
	require.Eventually(t, func() bool { return !running("(*Notifier)") }, soon, time.Millisecond, "it runs while there is something to tell")
	require.Equal(t, 1, sent.count("LISTEN"))
	require.Equal(t, notified, sent.count("pg_notify"))
	require.Equal(t, notified+1, sent.count(""))

	notifier.Notify()
	require.NoError(t, notifier.Close(t.Context()))
	require.NoError(t, notifier.Close(t.Context()), "a second time")
	require.NoError(t, l.stop())
	require.Eventually(t, func() bool { return !running("") }, soon, time.Millisecond, "a goroutine is left")
	require.Equal(t, notified+1, sent.count("pg_notify"), "what was told before is sent")
	notifier.Notify()
	require.NoError(t, notifier.Close(t.Context()))
	require.Equal(t, notified+1, sent.count("pg_notify"), "nothing is sent any more")
	require.Empty(t, l.errs)
	require.Empty(t, listeners(t, openPgx(t, pgxConfig(t, config.ConnString()))))
}

func TestNotificationsCoalesce(t *testing.T) {
	t.Parallel()
	config := pgxConfig(t, PostgresDSN(t))
	var sent statements
	config.ConnConfig.Tracer = &sent
	pool := openPgx(t, config)
	l := listen(t, pool)
	notifier := pgxtx.NewNotifier(pool)
	began := time.Now()
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for time.Since(began) < 200*time.Millisecond {
				notifier.Notify()
				runtime.Gosched()
			}
		})
	}
	all.Wait()
	notifier.Notify()
	took := time.Since(began)
	require.NoError(t, notifier.Close(t.Context()))
	n := sent.count("pg_notify")
	require.GreaterOrEqual(t, n, 2, "one at once, and one for all that came after it")
	require.LessOrEqual(t, n, 2+int(took/(5*time.Millisecond)))
	for range n {
		l.wantWake()
	}
}

// A pool that is used up delays a notification, and nobody who notifies.
func TestANotificationWaitsForAConnection(t *testing.T) {
	t.Parallel()
	config := pgxConfig(t, PostgresDSN(t))
	config.MaxConns = 1
	pool := openPgx(t, config)
	l := listen(t, pool) // on a connection beside the pool's
	taken, err := pool.Acquire(t.Context())
	require.NoError(t, err)
	notifier := pgxtx.NewNotifier(pool)
	notifier.Notify()
	taken.Release()
	l.wantWake()

	taken, err = pool.Acquire(t.Context())
	require.NoError(t, err)
	notifier.Notify()
	ctx, cancel := context.WithCancelCause(t.Context())
	impatient := errors.New("impatient")
	cancel(impatient)
	require.ErrorIs(t, notifier.Close(ctx), impatient)
	taken.Release()
	require.Empty(t, l.errs)
}

// Each outbox has a channel, whatever the length of its name.
func TestNotificationsOfEachOutboxAreApart(t *testing.T) {
	t.Parallel()
	pool := openPgx(t, pgxConfig(t, PostgresDSN(t)))
	long := pgxtx.WithSchema(strings.Repeat("s", 63))
	for _, opts := range [][]pgxtx.WakeOption{
		nil, {pgxtx.WithTablePrefix("Iam_")}, {pgxtx.WithSchema("app")}, {long}, {long, pgxtx.WithTablePrefix(strings.Repeat("p", 32))},
	} {
		l := listen(t, pool, opts...)
		others := pgxtx.NewNotifier(pool, pgxtx.WithTablePrefix("other_"))
		others.Notify()
		require.NoError(t, others.Close(t.Context()))
		own := pgxtx.NewNotifier(pool, opts...)
		own.Notify()
		require.NoError(t, own.Close(t.Context()))
		l.wantWake()
		require.NoError(t, l.stop())
		require.Empty(t, l.woken, "one notification was its own")
	}
}

func TestListenIsNotForATransaction(t *testing.T) {
	t.Parallel()
	pool, outbox := newPgx(t, pgxConfig(t, PostgresDSN(t)))
	require.NoError(t, outbox.Atomically(t.Context(), func(ctx context.Context) error {
		require.ErrorIs(t, pgxtx.Listen(ctx, pool, func() {}), persistence.ErrInTransaction)
		return nil
	}))
}

// Whoever notifies may do so through a pooler; whoever listens may not.
func TestANotificationThroughATransactionPooler(t *testing.T) {
	t.Parallel()
	dsn := PostgresDSN(t)
	l := listen(t, openPgx(t, pgxConfig(t, dsn)))
	pooled := pgxConfig(t, servers.PgBouncer(t, dsn))
	pooled.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	notifier := pgxtx.NewNotifier(openPgx(t, pooled), pgxtx.WithErrorHandler(func(err error) { t.Error(err) }))
	for range 3 {
		notifier.Notify()
		l.wantWake()
	}
	require.NoError(t, notifier.Close(t.Context()))
}
