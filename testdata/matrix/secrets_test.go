package matrix

import (
	"bytes"
	"context"
	"database/sql"
	"log/slog"
	"net/url"
	"sync"
	"testing"
	"time"

	mysqldriver "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"gorm.io/driver/mysql"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/gormtx"
	"github.com/onward-go/outbox/persistence"
	"github.com/onward-go/outbox/pgxtx"
	"github.com/onward-go/outbox/sqltx"
)

// secret is a password that no server knows, with what a URL escapes.
const secret = "tell-nobody@7%x"

// opened is a face over a server that refuses everybody.
type opened struct {
	persistence.Transactor
	persistence.OutboxStore
	persistence.OutboxCursorStore
	persistence.IdempotencyStore
	persistence.OutboxRetention
	Migrate func(context.Context) error
	Listen  func(ctx context.Context, onError func(error)) // nil where there is none
}

func openSqltx(t *testing.T, driver, dsn string, dialect sqltx.Dialect) opened {
	pool, err := sql.Open(driver, dsn)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pool.Close()) })
	o := sqltx.New(pool, dialect)
	return opened{o, o, o, o, o, o.Migrate, nil}
}

func openGormtx(t *testing.T, driver, dsn string, dialector func(*sql.DB) gorm.Dialector) opened {
	pool, err := sql.Open(driver, dsn)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pool.Close()) })
	db, err := gorm.Open(dialector(pool), &gorm.Config{Logger: logger.Discard, DisableAutomaticPing: true})
	require.NoError(t, err)
	o := gormtx.New(db)
	return opened{o, o, o, o, o, o.Migrate, nil}
}

func openPgxtx(t *testing.T, dsn string) opened {
	pool, err := pgxpool.New(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	o := pgxtx.New(pool)
	return opened{o, o, o, o, o, o.Migrate, func(ctx context.Context, onError func(error)) {
		_ = pgxtx.Listen(ctx, pool, func() {}, pgxtx.WithErrorHandler(onError))
	}}
}

// postgresDSN and mysqlDSN return the DSN with a password, and at an address,
// that are wrong.
func postgresDSN(t *testing.T, dsn, address string) string {
	u, err := url.Parse(dsn)
	require.NoError(t, err)
	u.User = url.UserPassword("outbox_nobody", secret)
	if address != "" {
		u.Host = address
	}
	return u.String()
}

func mysqlDSN(t *testing.T, dsn, address string) string {
	config, err := mysqldriver.ParseDSN(dsn)
	require.NoError(t, err)
	config.User, config.Passwd = "outbox_nobody", secret
	if address != "" {
		config.Addr = address
	}
	return config.FormatDSN()
}

// heard is what the library says.
type heard struct {
	mu   sync.Mutex
	text bytes.Buffer
	errs int
}

func (h *heard) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.text.Write(p)
}

func (h *heard) error(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil {
		h.errs++
		h.text.WriteString(err.Error() + "\n")
	}
}

// No password is in what the library returns or logs about a server that it
// cannot reach, or that does not let it in.
func TestPasswordsAreNeitherInErrorsNorInLogs(t *testing.T) {
	for _, server := range Servers {
		if server.Kind == nil || server.Again {
			continue
		}
		for reason, address := range map[string]string{"a wrong password": "", "a server that is not there": "127.0.0.1:1"} {
			t.Run(server.Name+"/"+reason, func(t *testing.T) {
				var all map[string]opened
				if server.Pgx {
					dsn := postgresDSN(t, server.New(t), address)
					all = map[string]opened{
						"sqltx with pgx": openSqltx(t, "pgx", dsn, sqltx.Postgres), "sqltx with lib/pq": openSqltx(t, "postgres", dsn, sqltx.Postgres),
						"gormtx": openGormtx(t, "pgx", dsn, func(pool *sql.DB) gorm.Dialector { return postgres.New(postgres.Config{Conn: pool}) }),
						"pgxtx":  openPgxtx(t, dsn),
					}
				} else {
					dsn := mysqlDSN(t, server.New(t), address)
					all = map[string]opened{
						"sqltx": openSqltx(t, "mysql", dsn, sqltx.MySQL),
						"gormtx": openGormtx(t, "mysql", dsn, func(pool *sql.DB) gorm.Dialector {
							return mysql.New(mysql.Config{Conn: pool, SkipInitializeWithVersion: true})
						}),
					}
				}
				for name, o := range all {
					requireSecrecy(t, name, o)
				}
			})
		}
	}
}

func requireSecrecy(t *testing.T, name string, o opened) {
	t.Helper()
	var h heard
	log := slog.New(slog.NewTextHandler(&h, &slog.HandlerOptions{Level: slog.LevelDebug}))
	ctx := t.Context()
	h.error(o.Migrate(ctx))
	h.error(o.Atomically(ctx, func(ctx context.Context) error { return events.NewPublisher(o).Publish(ctx, newEvents(1)...) }))
	_, err := persistence.Retain(ctx, o, time.Hour, persistence.RetentionOptions{})
	h.error(err)
	d := events.NewDispatcher(o, o, o, o, events.WithLogger(log))
	require.NoError(t, d.Subscribe("t", "h", func(context.Context, events.Event) error { return nil }))
	_, err = d.RunOnce(ctx, 1)
	h.error(err)
	h.error(d.Replay(ctx, markerOf("a")))
	h.error(events.NewDeadLetters(o, o).Requeue(ctx, markerOf("a")))
	require.Equal(t, 6, h.errs, name)
	until := func(run func(ctx context.Context, onError func(error))) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		run(ctx, func(err error) { h.error(err); cancel() })
	}
	until(func(ctx context.Context, onError func(error)) { h.error(d.Poll(ctx, time.Minute, 1, onError)) })
	if o.Listen != nil {
		until(o.Listen)
		require.Equal(t, 8, h.errs)
	}
	for _, form := range []string{secret, url.QueryEscape(secret), url.PathEscape(secret), "tell-nobody"} {
		require.NotContains(t, h.text.String(), form, name)
	}
}
