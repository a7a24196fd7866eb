package gormtx_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/gormtx"
	"github.com/onward-go/outbox/persistence"
	"github.com/onward-go/outbox/schema"
)

// calls are entry points that must all return what is wrong with the options
// or the tables.
func calls(outbox *gormtx.Outbox) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"Append": func(ctx context.Context) error {
			return outbox.Atomically(ctx, func(ctx context.Context) error {
				return events.NewPublisher(outbox).Publish(ctx, event("a"))
			})
		},
		"ReadAfter": func(ctx context.Context) error {
			_, err := outbox.ReadAfter(ctx, persistence.Cursor{}, 1)
			return err
		},
		"RunOnce": func(ctx context.Context) error {
			_, err := events.NewDispatcher(outbox, outbox, outbox, outbox).RunOnce(ctx, 1)
			return err
		},
		"ListDeadLetters": func(ctx context.Context) error {
			_, err := outbox.ListDeadLetters(ctx, persistence.DeadLetterQuery{Limit: 1})
			return err
		},
	}
}

func TestBadOptionsAreReturnedByEveryCall(t *testing.T) {
	db := openPure(t)
	for want, opts := range map[string][]gormtx.Option{
		"prefix":  {gormtx.WithTablePrefix("no-identifier")},
		"32":      {gormtx.WithTablePrefix(strings.Repeat("x", 33))},
		"schema":  {gormtx.WithSchema("app")}, // SQLite has none
		"async":   {gormtx.WithAsynchronousCommit()},
		"payload": {gormtx.WithMaxPayload(0)},
		"option":  {nil},
	} {
		outbox := gormtx.New(db, opts...)
		for name, call := range calls(outbox) {
			err := call(t.Context())
			require.ErrorIs(t, err, persistence.ErrInvalid, name)
			require.ErrorContains(t, err, want, name)
		}
		require.ErrorIs(t, outbox.Migrate(t.Context()), persistence.ErrInvalid)
	}
	both := gormtx.New(db, gormtx.WithTablePrefix("1"), gormtx.WithSchema("2"))
	err := both.Migrate(t.Context())
	require.ErrorContains(t, err, "prefix")
	require.ErrorContains(t, err, "schema")
	var tables int64
	require.NoError(t, db.Raw("SELECT count(*) FROM sqlite_master").Scan(&tables).Error)
	require.Zero(t, tables)
}

func TestBadDatabasesAreReturnedByEveryCall(t *testing.T) {
	for name, db := range map[string]*gorm.DB{"nil": nil, "failed": {Error: errRollback}, "not opened": {}} {
		for call, fn := range calls(gormtx.New(db)) {
			require.Error(t, fn(t.Context()), "%s %s", name, call)
		}
	}
}

func TestSchemaThatDoesNotFit(t *testing.T) {
	db := openPure(t)
	for name, call := range calls(gormtx.New(db)) {
		err := call(t.Context())
		require.ErrorIs(t, err, persistence.ErrSchema, name)
		require.ErrorContains(t, err, "table outbox is missing", name)
	}
	require.NoError(t, gormtx.Migrate(t.Context(), db))
	require.NoError(t, gormtx.Migrate(t.Context(), db), "a second time")

	require.NoError(t, db.Exec("UPDATE outbox_schema SET version = ? WHERE version = ?", schema.Version+1, schema.Version).Error)
	for name, call := range calls(gormtx.New(db)) {
		err := call(t.Context())
		require.ErrorIs(t, err, persistence.ErrSchema, name)
		require.ErrorContains(t, err, "upgrade the library", name)
	}
	require.ErrorIs(t, gormtx.Migrate(t.Context(), db), persistence.ErrSchema)

	require.NoError(t, db.Exec("DELETE FROM outbox_schema").Error)
	require.Error(t, calls(gormtx.New(db))["ReadAfter"](t.Context()))
	require.Empty(t, published(t, db))
}

func TestMigrateRefusesATransaction(t *testing.T) {
	_, outbox := migrated(t)
	require.NoError(t, outbox.Atomically(t.Context(), func(ctx context.Context) error {
		require.ErrorIs(t, outbox.Migrate(ctx), persistence.ErrInTransaction)
		return nil
	}))
}

func TestReplicasMayMigrateAtOnce(t *testing.T) {
	path := t.TempDir() + "/outbox.db"
	results := make(chan error, 4)
	for range cap(results) {
		db := open(t, drivers["pure"](path))
		go func() { results <- gormtx.Migrate(t.Context(), db) }()
	}
	for range cap(results) {
		require.NoError(t, <-results)
	}
}

func TestMaxPayload(t *testing.T) {
	_, outbox := migrated(t, gormtx.WithMaxPayload(10))
	require.NoError(t, outbox.Atomically(t.Context(), func(ctx context.Context) error {
		evt := event("a")
		evt.Payload = make([]byte, 11)
		err := events.NewPublisher(outbox).Publish(ctx, evt)
		require.ErrorIs(t, err, persistence.ErrInvalid)
		require.ErrorContains(t, err, "payload is 11 bytes, the limit is 10")
		require.ErrorContains(t, err, "table outbox")
		evt.Payload = make([]byte, 10)
		return events.NewPublisher(outbox).Publish(ctx, evt)
	}))
}

// The constructors of the single stores work together like the bundle.
func TestSingleConstructors(t *testing.T) {
	db, _ := migrated(t)
	store := gormtx.NewGormOutboxStore(db)
	cursors := gormtx.NewGormOutboxCursorStore(db)
	tx := gormtx.NewGormTransactor(db)
	d := events.NewDispatcher(store, cursors, tx, gormtx.NewGormIdempotencyStore(db))
	require.NoError(t, d.Subscribe("t", "h", func(ctx context.Context, evt events.Event) error {
		return gormtx.Tx(ctx).Create(&user{evt.ID, "applied"}).Error
	}))
	require.NoError(t, tx.Atomically(t.Context(), func(ctx context.Context) error {
		return events.NewPublisher(store).Publish(ctx, event("a"))
	}))
	for range 2 {
		n, err := d.RunOnce(t.Context(), 10)
		require.NoError(t, err)
		require.Equal(t, 1, n)
		require.NoError(t, cursors.Rewind(t.Context(), events.DefaultName, persistence.Cursor{}))
	}
	var users []user
	require.NoError(t, db.Find(&users).Error)
	require.Equal(t, []user{{"a", "applied"}}, users)
	keyed := event("b")
	keyed.DedupKey = "k"
	for _, want := range []error{nil, persistence.ErrDuplicate} {
		require.ErrorIs(t, tx.Atomically(t.Context(), func(ctx context.Context) error {
			return events.NewPublisher(store).Publish(ctx, keyed)
		}), want)
	}
}

func TestRetentionKeepsDedupKeysAsLongAsItIsTold(t *testing.T) {
	db, outbox := migrated(t)
	keyed := event("a")
	keyed.DedupKey = "k"
	require.NoError(t, outbox.Atomically(t.Context(), func(ctx context.Context) error {
		return events.NewPublisher(outbox).Publish(ctx, keyed)
	}))
	for _, age := range []struct{ hours, keep, purged int }{{29 * 24, 0, 0}, {31 * 24, 32 * 24, 0}, {31 * 24, 0, 1}} {
		old := time.Now().Add(-time.Duration(age.hours) * time.Hour).UnixMicro()
		require.NoError(t, db.Exec("UPDATE outbox_dedup SET created_time = ?", old).Error)
		var opts []gormtx.RetentionOption
		if age.keep > 0 {
			opts = append(opts, gormtx.WithKeepKeys(time.Duration(age.keep)*time.Hour))
		}
		report, err := gormtx.RunRetention(t.Context(), db, 24*time.Hour, opts...)
		require.NoError(t, err)
		require.Equal(t, age.purged, report.PurgedKeys, age)
	}
	for _, bad := range []time.Duration{0, -time.Hour} {
		_, err := gormtx.RunRetention(t.Context(), db, 0, gormtx.WithKeepKeys(bad))
		require.ErrorIs(t, err, persistence.ErrInvalid)
	}
}
