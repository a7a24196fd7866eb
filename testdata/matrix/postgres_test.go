package matrix

import (
	"context"
	"errors"
	"sync/atomic"
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

// roundTrips counts what pgx sends and waits for.
type roundTrips struct{ n atomic.Int64 }

func (r *roundTrips) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	r.n.Add(1)
	return ctx
}
func (r *roundTrips) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
func (r *roundTrips) TracePrepareStart(ctx context.Context, _ *pgx.Conn, _ pgx.TracePrepareStartData) context.Context {
	r.n.Add(1)
	return ctx
}
func (r *roundTrips) TracePrepareEnd(context.Context, *pgx.Conn, pgx.TracePrepareEndData) {}
func (r *roundTrips) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	r.n.Add(1)
	return ctx
}
func (r *roundTrips) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (r *roundTrips) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

func newEvents(n int) []events.Event {
	evts := make([]events.Event, n)
	for i := range evts {
		evts[i] = events.Event{Type: "t", AggregateType: "a", AggregateID: "1", Payload: make([]byte, 100)}
	}
	return evts
}

func TestPostgresPublishIsOneRoundTrip(t *testing.T) {
	config, err := pgx.ParseConfig(PostgresDSN(t))
	require.NoError(t, err)
	var counter roundTrips
	config.Tracer = &counter
	db := Open(t, postgres.New(postgres.Config{Conn: stdlib.OpenDB(*config)}), &gorm.Config{Logger: logger.Discard})
	outbox := gormtx.New(db)
	require.NoError(t, outbox.Migrate(t.Context()))
	publisher := events.NewPublisher(outbox)
	counts := map[int]int64{}
	for _, n := range []int{1, 2, 1, 2, 1000, 20_000} { // the first two prepare
		require.NoError(t, outbox.Atomically(t.Context(), func(ctx context.Context) error {
			before := counter.n.Load()
			err := publisher.Publish(ctx, newEvents(n)...)
			counts[n] = counter.n.Load() - before
			return err
		}))
	}
	require.Equal(t, map[int]int64{1: 1, 2: 1, 1000: 1, 20_000: 1}, counts)
}

// newPostgres returns an outbox in a new database.
func newPostgres(t *testing.T, opts ...gormtx.Option) (*gorm.DB, *gormtx.Outbox) {
	return newPostgresAt(t, PostgresDSN(t), opts...)
}

func newPostgresAt(t *testing.T, dsn string, opts ...gormtx.Option) (*gorm.DB, *gormtx.Outbox) {
	db := Open(t, postgres.Open(dsn), &gorm.Config{Logger: logger.Discard})
	outbox := gormtx.New(db, opts...)
	require.NoError(t, outbox.Migrate(t.Context()))
	return db, outbox
}

func publish(t *testing.T, outbox *gormtx.Outbox, id string) {
	t.Helper()
	require.NoError(t, outbox.Atomically(t.Context(), func(ctx context.Context) error {
		return events.NewPublisher(outbox).Publish(ctx, events.Event{ID: id, Type: "t", AggregateType: "a", AggregateID: "1"})
	}))
}

func visible(t *testing.T, outbox *gormtx.Outbox) []string {
	t.Helper()
	records, err := outbox.ReadAfter(t.Context(), persistence.Cursor{}, 100)
	require.NoError(t, err)
	ids := []string{}
	for _, r := range records {
		ids = append(ids, r.ID)
	}
	return ids
}

const insertByHand = `INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type) VALUES (?, 'a', '1', 't')`

func TestPostgresRowInsertedByHandIsFenced(t *testing.T) {
	db, outbox := newPostgres(t)
	tx := db.Begin()
	require.NoError(t, tx.Exec(insertByHand, "by-hand").Error)
	publish(t, outbox, "published")
	require.Empty(t, visible(t, outbox), "the cursor must not pass the open row")
	require.NoError(t, tx.Commit().Error)
	require.Equal(t, []string{"by-hand", "published"}, visible(t, outbox))

	delivered := []string{}
	d := events.NewDispatcher(outbox, outbox, outbox, outbox)
	require.NoError(t, d.Subscribe("t", "h", func(_ context.Context, evt events.Event) error {
		delivered = append(delivered, evt.ID)
		return nil
	}))
	_, err := d.RunOnce(t.Context(), 10)
	require.NoError(t, err)
	require.Equal(t, []string{"by-hand", "published"}, delivered)
}

func TestPostgresStampFollowsFence(t *testing.T) {
	db, outbox := newPostgres(t)
	for _, n := range []int{1, 2} { // which are statements of their own
		var stamps []time.Time
		var free time.Time
		require.NoError(t, db.Connection(func(holder *gorm.DB) error {
			return outbox.Atomically(t.Context(), func(ctx context.Context) error {
				var key int64
				require.NoError(t, gormtx.Tx(ctx).Raw("SELECT ('outbox'::regclass::oid::bigint & 524287) << 44 | floor(extract(epoch FROM now()) * 1000)::bigint").Scan(&key).Error)
				require.NoError(t, holder.Exec("SELECT pg_advisory_lock(?)", key).Error)
				freed := make(chan error, 1)
				go func() {
					var err error
					for waits := false; err == nil && !waits; {
						err = holder.Raw("SELECT count(*) > 0 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted").Scan(&waits).Error
					}
					freed <- errors.Join(err,
						holder.Raw("SELECT clock_timestamp() FROM (SELECT pg_sleep(0.01)) AS s").Scan(&free).Error,
						holder.Exec("SELECT pg_advisory_unlock(?)", key).Error)
				}()
				err := events.NewPublisher(outbox).Publish(ctx, newEvents(n)...)
				require.NoError(t, <-freed)
				require.NoError(t, gormtx.Tx(ctx).Raw("SELECT created_time FROM outbox ORDER BY created_time DESC LIMIT ?", n).Scan(&stamps).Error)
				return err
			})
		}))
		require.Len(t, stamps, n)
		for _, stamp := range stamps {
			require.True(t, stamp.After(free), "a stamp of %s, and the fence was free after %s", stamp, free)
		}
	}
}

func TestPostgresPreparedTransactionIsFenced(t *testing.T) {
	db, outbox := newPostgres(t)
	require.NoError(t, db.Connection(func(conn *gorm.DB) error {
		for _, statement := range []string{"BEGIN", `INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type) VALUES ('two-phase', 'a', '1', 't')`, "PREPARE TRANSACTION 'matrix'"} {
			if err := conn.Exec(statement).Error; err != nil {
				return err
			}
		}
		return nil
	}))
	publish(t, outbox, "published")
	require.Empty(t, visible(t, outbox))
	require.NoError(t, db.Exec("COMMIT PREPARED 'matrix'").Error)
	require.Equal(t, []string{"two-phase", "published"}, visible(t, outbox))
}

func TestPostgresNothingButAProducerHoldsTheMark(t *testing.T) {
	db, outbox := newPostgres(t)
	other := gormtx.New(db, gormtx.WithTablePrefix("other_"))
	require.NoError(t, other.Migrate(t.Context()))
	require.NoError(t, db.Exec("CREATE TABLE unrelated (n int)").Error)
	for name, statements := range map[string][]string{
		"a transaction that writes elsewhere": {"INSERT INTO unrelated VALUES (1)"},
		"a snapshot":                          {"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", "SELECT 1"},
		"a producer of another outbox":        {"INSERT INTO other_outbox (id, aggregate_type, aggregate_id, event_type) VALUES (gen_random_uuid(), 'a', '1', 't')"},
		"an application's advisory locks": {
			"SELECT pg_advisory_xact_lock_shared(1)", "SELECT pg_advisory_xact_lock(2, 3)",
			"SELECT pg_advisory_xact_lock_shared(('outbox'::regclass::oid::bigint & 524287) << 44 | 1000000)",
			"SELECT pg_advisory_xact_lock(('outbox'::regclass::oid::bigint & 524287) << 44 | floor(extract(epoch FROM now()) * 1000)::bigint - 1000)",
		},
	} {
		tx := db.Begin()
		for _, statement := range statements {
			require.NoError(t, tx.Exec(statement).Error, name)
		}
		id := events.NewID()
		publish(t, outbox, id)
		require.Contains(t, visible(t, outbox), id, name)
		require.NoError(t, tx.Rollback().Error)
	}
}

func TestPostgresTwoOutboxesInOneDatabaseAreApart(t *testing.T) {
	db, outbox := newPostgres(t)
	for _, opts := range [][]gormtx.Option{{gormtx.WithTablePrefix("other_")}, {gormtx.WithSchema("elsewhere")}} {
		other := gormtx.New(db, opts...)
		require.NoError(t, other.Migrate(t.Context()))
		publish(t, other, "theirs")
		require.Equal(t, []string{"theirs"}, visible(t, other))
	}
	publish(t, outbox, "mine")
	require.Equal(t, []string{"mine"}, visible(t, outbox))
}

func TestPostgresPartitionsFromTheFirstMigration(t *testing.T) {
	db, _ := newPostgres(t)
	var names []string
	require.NoError(t, db.Raw(`SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'outbox'::regclass ORDER BY 1`).Scan(&names).Error)
	var now time.Time
	require.NoError(t, db.Raw("SELECT now()").Scan(&now).Error)
	first := time.Date(now.UTC().Year(), now.UTC().Month(), 1, 0, 0, 0, 0, time.UTC)
	want := []string{}
	for i := range 4 {
		want = append(want, first.AddDate(0, i, 0).Format("outbox_p2006_01"))
	}
	require.Equal(t, append(want, "outbox_pmax"), names)
	// No month is without a partition.
	for _, at := range []time.Time{first.AddDate(-10, 0, 0), first.AddDate(0, 4, 0), first.AddDate(10, 0, 0)} {
		require.NoError(t, db.Exec(insertByHand, at.Format(time.DateOnly)).Error)
		require.NoError(t, db.Exec("UPDATE outbox SET created_time = ? WHERE id = ?", at, at.Format(time.DateOnly)).Error)
	}
}

func TestPostgresReplicasMayMigrateAtOnce(t *testing.T) {
	t.Parallel()
	for _, isolation := range []string{"read committed", "repeatable read", "serializable"} {
		t.Run(isolation, func(t *testing.T) {
			config, err := pgx.ParseConfig(PostgresDSN(t))
			require.NoError(t, err)
			config.RuntimeParams["default_transaction_isolation"] = isolation
			results := make(chan error, 8)
			for range cap(results) {
				db := Open(t, postgres.New(postgres.Config{Conn: stdlib.OpenDB(*config)}), &gorm.Config{Logger: logger.Discard})
				go func() { results <- gormtx.Migrate(t.Context(), db, gormtx.WithSchema("fresh")) }()
			}
			for range cap(results) {
				require.NoError(t, <-results)
			}
		})
	}
}

// A failed statement aborts a PostgreSQL transaction until the rollback to a
// savepoint.
func TestPostgresAbortedTransaction(t *testing.T) {
	_, outbox := newPostgres(t)
	publisher := events.NewPublisher(outbox)
	event := newEvents(1)[0]
	err := outbox.Atomically(t.Context(), func(ctx context.Context) error {
		require.Error(t, gormtx.Tx(ctx).Exec("SELECT 1/0").Error) // and swallowed
		require.ErrorIs(t, publisher.Publish(ctx, event), persistence.ErrNoTransaction)
		return nil
	})
	require.Error(t, err)
	require.NoError(t, outbox.Atomically(t.Context(), func(ctx context.Context) error {
		require.Error(t, outbox.Atomically(ctx, func(ctx context.Context) error {
			return gormtx.Tx(ctx).Exec("SELECT 1/0").Error
		}))
		return publisher.Publish(ctx, event)
	}))
	require.Len(t, visible(t, outbox), 1)
}
