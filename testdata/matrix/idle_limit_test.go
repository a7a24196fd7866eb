package matrix

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/gormtx"
	"github.com/onward-go/outbox/internal/sqlstore"
	"github.com/onward-go/outbox/persistence"
	"github.com/onward-go/outbox/schema"
)

func markerOf(id string) persistence.Marker {
	return persistence.Marker{Event: persistence.Cursor{CreatedTime: time.Now().UTC().Truncate(time.Microsecond), ID: id}, Handler: "h"}
}

// A process that is paused in a handler leaves an open marker, for which its
// successor waits.
func TestPostgresEndsATransactionThatStandsIdlePastItsDeadline(t *testing.T) {
	_, outbox := newPostgres(t)
	marker := markerOf("a")
	recorded, resume := make(chan struct{}), make(chan struct{})
	paused := make(chan error, 1)
	go func() {
		paused <- outbox.Atomically(t.Context(), func(ctx context.Context) error {
			handler, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
			defer cancel()
			_, err := outbox.Record(handler, marker)
			close(recorded)
			<-resume
			return err
		})
	}()
	<-recorded
	require.NoError(t, outbox.Atomically(t.Context(), func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
		defer cancel()
		got, err := outbox.Record(ctx, marker)
		require.NoError(t, err)
		require.Equal(t, []bool{true}, got)
		return nil
	}))
	close(resume)
	err := <-paused
	require.Error(t, err)
	require.True(t, outbox.IsTransient(err), err)
}

func TestPostgresIdleLimitIsTheLowerOneAndEndsWithTheTransaction(t *testing.T) {
	db, outbox := newPostgres(t)
	pool, err := db.DB()
	require.NoError(t, err)
	pool.SetMaxOpenConns(1)
	for name, c := range map[string]struct {
		before    string
		deadline  time.Duration // 0: none
		low, high int           // ms
	}{
		"none without a deadline":  {"0", 0, 0, 0},
		"that of before":           {"2min", 0, 120_000, 120_000},
		"that of the deadline":     {"0", time.Hour, 3_500_000, 3_601_000},
		"lower than that before":   {"1d", time.Hour, 3_500_000, 3_601_000},
		"higher than that before":  {"1500ms", time.Hour, 1500, 1500},
		"higher than the greatest": {"0", 1000 * time.Hour, 2_073_600_000, 2_073_600_000},
	} {
		limit := func(ctx context.Context) (ms int) {
			require.NoError(t, gormtx.DB(ctx, db).Raw("SELECT setting FROM pg_settings WHERE name = 'idle_in_transaction_session_timeout'").Scan(&ms).Error)
			return ms
		}
		require.NoError(t, outbox.Atomically(t.Context(), func(ctx context.Context) error {
			require.NoError(t, gormtx.Tx(ctx).Exec("SET LOCAL idle_in_transaction_session_timeout = '"+c.before+"'").Error)
			if c.deadline > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, c.deadline)
				defer cancel()
			}
			for _, ids := range [][]string{{"a"}, {"b"}, {"c", "d"}} { // one and many are different statements
				var markers []persistence.Marker
				for _, id := range ids {
					m := markerOf(id)
					m.Handler = name
					markers = append(markers, m)
				}
				for _, want := range []bool{true, false} {
					got, err := outbox.Record(ctx, markers...)
					require.NoError(t, err)
					require.Equal(t, slices.Repeat([]bool{want}, len(ids)), got, name)
					require.GreaterOrEqual(t, limit(ctx), c.low, name)
					require.LessOrEqual(t, limit(ctx), c.high, name)
				}
			}
			return nil
		}))
		require.Zero(t, limit(t.Context()), name)
	}
}

// A process that is paused while it writes more than its cursor keeps the row
// locked that is also the lease's.
func TestPostgresEndsASidecarWriteThatStandsIdle(t *testing.T) {
	db, outbox := newPostgres(t)
	require.NoError(t, outbox.Create(t.Context(), "d", persistence.Cursor{}))
	for _, name := range []string{"SaveCursor", "LockCursor"} {
		args := []any{"d"}
		if name == "SaveCursor" {
			args = append(args, 0, time.Now(), "id", 1)
		}
		pool, err := db.DB()
		require.NoError(t, err)
		tx, err := pool.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		_, err = tx.ExecContext(t.Context(), sqlstore.Postgres.Text(name, schema.Naming{}), args...)
		require.NoError(t, err)
		// Waits for the lock.
		lease, err := outbox.Acquire(t.Context(), "d", "successor", time.Minute)
		require.NoError(t, err)
		require.NoError(t, outbox.Release(t.Context(), lease))
		require.Error(t, tx.Commit())
	}
}
