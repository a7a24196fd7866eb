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
	const day = 86_400_000
	const unset = -1 // no deadline, and a limit of the transaction's own
	for name, c := range map[string]struct {
		session   string
		deadline  time.Duration // 0: none
		low, high int           // ms
	}{
		"none without a deadline":      {"0", 0, 0, 0},
		"that of the session":          {"2min", 0, 120_000, 120_000},
		"as somebody has set it":       {"2min", unset, 5000, 5000},
		"that of the deadline":         {"0", time.Hour, 3_500_000, 3_601_000},
		"lower than the session's":     {"1d", time.Hour, 3_500_000, 3_601_000},
		"higher than the session's":    {"1500ms", time.Hour, 1500, 1500},
		"as high as it can be":         {"0", 1000 * time.Hour, 24 * day, 24*day + 1000},
		"the session's, a time passed": {"1500ms", time.Nanosecond, 1000, 1000},
	} {
		t.Run(name, func(t *testing.T) {
			db, outbox := newPostgresAt(t, PostgresDSN(t)+"&idle_in_transaction_session_timeout="+c.session)
			limit := func(ctx context.Context) (ms int) {
				require.NoError(t, gormtx.DB(ctx, db).Raw("SELECT setting FROM pg_settings WHERE name = 'idle_in_transaction_session_timeout'").Scan(&ms).Error)
				return ms
			}
			bare := limit(t.Context())
			within := func(record func(ctx context.Context) error) {
				require.NoError(t, outbox.Atomically(t.Context(), func(ctx context.Context) error {
					limited := ctx
					switch {
					case c.deadline > 0:
						limited = deadlined{ctx, time.Now().Add(c.deadline)}
					case c.deadline == unset:
						require.NoError(t, gormtx.Tx(ctx).Exec("SET LOCAL idle_in_transaction_session_timeout = '5s'").Error)
					}
					require.NoError(t, record(limited))
					require.GreaterOrEqual(t, limit(ctx), c.low)
					require.LessOrEqual(t, limit(ctx), c.high)
					return nil
				}))
				require.Equal(t, bare, limit(t.Context()))
			}
			// Each is a statement of its own.
			within(func(ctx context.Context) error { return outbox.RecordNew(ctx, markerOf("a")) })
			for _, ids := range [][]string{{"b"}, {"c", "d"}} {
				var markers []persistence.Marker
				for _, id := range ids {
					markers = append(markers, markerOf(id))
				}
				for _, want := range []bool{true, false} {
					within(func(ctx context.Context) error {
						got, err := outbox.Record(ctx, markers...)
						require.Equal(t, slices.Repeat([]bool{want}, len(ids)), got)
						return err
					})
				}
			}
		})
	}
}

// deadlined is a context that has a deadline, and does not end with it.
type deadlined struct {
	context.Context
	deadline time.Time
}

func (d deadlined) Deadline() (time.Time, bool) { return d.deadline, true }

// A process that is paused while it writes more than its cursor keeps the row
// locked that is also the lease's.
func TestPostgresEndsASidecarWriteThatStandsIdle(t *testing.T) {
	db, outbox := newPostgres(t)
	require.NoError(t, outbox.Create(t.Context(), "d", persistence.Cursor{}))
	for _, name := range []string{"SaveCursor", "LockCursor"} {
		args := []any{"d"}
		if name == "SaveCursor" {
			holder, err := outbox.Acquire(t.Context(), "d", "holder", time.Microsecond) // it has expired
			require.NoError(t, err)
			args = append(args, holder.Token, time.Now(), "id", 1, 0, 0, holder.Owner, holder.Incarnation)
		}
		pool, err := db.DB()
		require.NoError(t, err)
		tx, err := pool.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		result, err := tx.ExecContext(t.Context(), sqlstore.Postgres.Text(name, schema.Naming{}), args...)
		require.NoError(t, err)
		locked, err := result.RowsAffected()
		require.NoError(t, err)
		require.EqualValues(t, 1, locked)
		// Waits for the lock.
		lease, err := outbox.Acquire(t.Context(), "d", "successor", time.Minute)
		require.NoError(t, err)
		require.NoError(t, outbox.Release(t.Context(), lease))
		require.Error(t, tx.Commit())
	}
}
