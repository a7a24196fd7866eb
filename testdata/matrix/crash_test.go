package matrix

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/onward-go/outbox/internal/sqlstore"
	"github.com/onward-go/outbox/internal/stdsql"
	"github.com/onward-go/outbox/persistence"
	"github.com/onward-go/outbox/schema"
)

var errCrash = errors.New("the process has crashed")

// crash is where a process ends: no statement takes effect after it.
type crash struct {
	mu         sync.Mutex
	statements []string // so far
	after      int      // number of the last statement; -1: never
	done       bool     // the last one takes effect, though the process does not learn it
	alone      []bool   // whether each statement was a transaction of its own
	rewrite    func(query string) string
	kills      int // statements that were interrupted
}

// exec runs a statement, unless the process has crashed.
func (c *crash) exec(ctx context.Context, conn sqlstore.Conn, alone bool, query string, args []any) (int64, error) {
	if strings.HasPrefix(query, "KILL") { // depends on the time
		n, err := conn.Exec(ctx, query, args...)
		if err == nil {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.kills++
		}
		return n, err
	}
	c.mu.Lock()
	c.statements = append(c.statements, query)
	if c.rewrite != nil {
		query = c.rewrite(query)
	}
	c.alone = append(c.alone, alone)
	n := len(c.statements)
	c.mu.Unlock()
	switch {
	case c.after < 0 || n < c.after:
		return conn.Exec(ctx, query, args...)
	case n == c.after && c.done:
		if _, err := conn.Exec(ctx, query, args...); err != nil {
			return 0, err
		}
	}
	return 0, errCrash
}

type crashingPool struct {
	stdsql.Pool
	crash *crash
}

func (p crashingPool) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	return p.crash.exec(ctx, p.Pool, true, query, args)
}

type crashingTx struct {
	*stdsql.Tx
	crash *crash
}

func (t crashingTx) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	return t.crash.exec(ctx, t.Tx, false, query, args)
}

type crashingSession struct {
	*stdsql.Session
	crash *crash
}

func (s crashingSession) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	return s.crash.exec(ctx, s.Session, true, query, args)
}

// crashingStore is an outbox as a process sees it that crashes.
func crashingStore(a aged, c *crash) *sqlstore.Store {
	pool, err := a.db.DB()
	require.NoError(a.t, err)
	dialect := map[string]*sqlstore.Dialect{"postgres": sqlstore.Postgres, "mysql": sqlstore.MySQL}[a.db.Name()]
	transactions := stdsql.NewTransactions(pool, dialect)
	return sqlstore.New(sqlstore.Config{
		Database: pool, Dialect: dialect, Naming: schema.Naming{Prefix: a.prefix}, MaxPayload: 1,
		Pool:           crashingPool{stdsql.Pool{DB: pool}, c},
		MaxConnections: func() int { return 0 },
		Begin: func(ctx context.Context) (persistence.Tx, error) {
			tx, err := transactions.Begin(ctx, nil)
			return crashingTx{tx, c}, err
		},
		Session: func(ctx context.Context) (sqlstore.Session, error) {
			session, err := stdsql.OpenSession(ctx, pool)
			return crashingSession{session, c}, err
		},
	})
}

// A crash before or after any statement leaves an outbox that takes events of
// now and of later months, and the next run ends what was begun.
func TestRetentionSurvivesACrashAtEachStep(t *testing.T) {
	t.Parallel()
	onPartitions(t, func(t *testing.T, server Server, db *gorm.DB) {
		if server.Again {
			return // the statements are the other's
		}
		run := 0
		prepare := func() aged {
			run++
			a := newAged(t, db, fmt.Sprintf("r%d_", run), startOfMonth(-22), startOfMonth(-6))
			a.insert("old", startOfMonth(-23))
			a.insert("kept", startOfMonth(-5))
			return a
		}
		retain := func(a aged, c *crash) error {
			_, err := persistence.Retain(t.Context(), crashingStore(a, c), 600*day, persistence.RetentionOptions{NoConsumers: true})
			return err
		}
		a, spared := prepare(), &crash{after: -1}
		require.NoError(t, retain(a, spared))
		require.Equal(t, []string{"kept"}, a.rows())
		left := len(a.partitions(a.prefix+"outbox")) + len(a.partitions(a.prefix+"outbox_idempotency"))

		for after := range spared.statements {
			for _, done := range []bool{false, true} {
				if done && !spared.alone[after] {
					continue // it goes with its transaction
				}
				name := fmt.Sprintf("statement %d, done %v: %s", after, done, strings.Join(strings.Fields(spared.statements[after]), " "))
				a := prepare()
				require.ErrorIs(t, retain(a, &crash{after: after + 1, done: done}), errCrash, name)
				for id, at := range map[string]time.Time{"now": time.Now(), "next month": startOfMonth(1), "next year": startOfMonth(9)} {
					a.insert(id, at)
				}
				require.NoError(t, retain(a, &crash{after: -1}), name)
				require.Equal(t, []string{"kept", "now", "next month", "next year"}, a.rows(), name)
				require.LessOrEqual(t, len(a.partitions(a.prefix+"outbox"))+len(a.partitions(a.prefix+"outbox_idempotency")), left, name)
			}
		}
	})
}
