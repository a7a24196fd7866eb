package matrix

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/gormtx"
	"github.com/onward-go/outbox/persistence"
)

// keyed returns n events with dedup keys.
func keyed(prefix string, n int) []events.Event {
	evts := newEvents(n)
	for i := range evts {
		evts[i].DedupKey = fmt.Sprintf("%s-%05d", prefix, i)
	}
	return evts
}

func TestPostgresDedupKeysTakeOneRoundTripMore(t *testing.T) {
	config, err := pgx.ParseConfig(PostgresDSN(t))
	require.NoError(t, err)
	var counter roundTrips
	config.Tracer = &counter
	db := Open(t, postgres.New(postgres.Config{Conn: stdlib.OpenDB(*config)}), &gorm.Config{Logger: logger.Discard})
	outbox := gormtx.New(db)
	require.NoError(t, outbox.Migrate(t.Context()))
	publisher := events.NewPublisher(outbox)
	cost := func(want error, evts ...events.Event) (n int64) {
		require.NoError(t, outbox.Atomically(t.Context(), func(ctx context.Context) error {
			before := counter.n.Load()
			require.ErrorIs(t, publisher.Publish(ctx, evts...), want)
			n = counter.n.Load() - before
			return nil
		}))
		return n
	}
	for round := range 2 { // the first one prepares
		taken := keyed(fmt.Sprint("taken", round), 2)
		counts := []int64{
			cost(nil, newEvents(2)...),
			cost(nil, taken...),
			cost(nil, keyed(fmt.Sprint("one", round), 1)...),
			cost(nil, append(newEvents(2), keyed(fmt.Sprint("many", round), 5000)...)...),
			cost(persistence.ErrDuplicate, taken...),
			cost(persistence.ErrDuplicate, append(keyed("free", 2), taken[0])...),
		}
		if round > 0 {
			require.Equal(t, []int64{1, 2, 2, 2, 1, 2}, counts)
		}
	}
}

// A transaction that keeps to one snapshot cannot be told that a key is taken
// which it does not see.
func TestPostgresKeyThatTheSnapshotDoesNotSeeIsASerializationFailure(t *testing.T) {
	db, outbox := newPostgres(t)
	publisher := events.NewPublisher(outbox)
	for _, isolation := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable} {
		evts := keyed(isolation.String(), 1)
		command := func(between func()) error {
			return db.Transaction(func(tx *gorm.DB) error {
				require.NoError(t, tx.Exec("SELECT count(*) FROM outbox").Error) // the snapshot
				between()
				ctx, err := gormtx.WithTx(t.Context(), tx)
				require.NoError(t, err)
				return publisher.Publish(ctx, evts...)
			}, &sql.TxOptions{Isolation: isolation})
		}
		err := command(func() {
			require.NoError(t, outbox.Atomically(t.Context(), func(ctx context.Context) error { return publisher.Publish(ctx, evts...) }))
		})
		if isolation != sql.LevelReadCommitted {
			require.Error(t, err)
			require.NotErrorIs(t, err, persistence.ErrDuplicate)
			require.True(t, outbox.IsTransient(err), err)
			err = command(func() {}) // tried again
		}
		require.ErrorIs(t, err, persistence.ErrDuplicate)
	}
	requireRows(t, db, "outbox", 3)
}

// waiting counts the transactions that wait for a lock.
var waiting = map[string]string{
	"postgres": "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'",
	// MySQL's innodb_trx fails while anybody runs a statement with a character of
	// four bytes; MariaDB has nothing else.
	"mysql": `
SELECT COUNT(*) FROM /*!80022 (
  SELECT DISTINCT t.processlist_id, t.processlist_db AS db
  FROM performance_schema.data_lock_waits AS w JOIN performance_schema.threads AS t ON t.thread_id = w.requesting_thread_id
) AS waiting */ /*M! (
  SELECT p.db FROM information_schema.innodb_trx AS t JOIN information_schema.processlist AS p ON p.id = t.trx_mysql_thread_id
  WHERE t.trx_state = 'LOCK WAIT'
) AS waiting */ WHERE waiting.db = DATABASE()`,
}

// Commands that wait for a key, and try again when their transaction was ended
// for a fault that is not theirs, emit one event. Of those that wait on MySQL and
// MariaDB when the key's owner rolls back, all but one may be victims of a
// deadlock: InnoDB grants each a lock on the gap.
func TestOneOfManyThatWaitForADedupKeySucceeds(t *testing.T) {
	t.Parallel()
	const waiters = 8
	onPartitions(t, func(t *testing.T, server Server, db *gorm.DB) {
		outbox := gormtx.New(db)
		require.NoError(t, outbox.Migrate(t.Context()))
		publisher := events.NewPublisher(outbox)
		for round := range 3 {
			key := fmt.Sprint("key", round)
			results := make(chan error, waiters)
			faults := make(chan error, 100*waiters)
			roll := errors.New("roll back")
			require.ErrorIs(t, outbox.Atomically(t.Context(), func(ctx context.Context) error {
				require.NoError(t, publisher.Publish(ctx, keyed(key, 1)...))
				for range waiters {
					go func() {
						for {
							err := outbox.Atomically(t.Context(), func(ctx context.Context) error {
								return publisher.Publish(ctx, keyed(key, 1)...)
							})
							if !outbox.IsTransient(err) {
								results <- err
								return
							}
							faults <- err
						}
					}()
				}
				for n := 0; n < waiters; {
					require.NoError(t, db.Raw(waiting[db.Name()]).Scan(&n).Error)
					select {
					case <-time.After(120 * time.Millisecond): // InnoDB answers from a cache for as long
					case <-t.Context().Done():
						return t.Context().Err()
					}
				}
				return roll
			}), roll)
			succeeded := 0
			for range waiters {
				err := <-results
				if err == nil {
					succeeded++
					continue
				}
				require.ErrorIs(t, err, persistence.ErrDuplicate)
			}
			require.Equal(t, 1, succeeded)
			requireRows(t, db, "outbox", round+1)
			t.Logf("%d transactions were tried again", len(faults))
			if db.Name() == "postgres" {
				require.Empty(t, faults)
			}
		}
	})
}
