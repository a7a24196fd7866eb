package sqltx_test

import (
	"context"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/gormtx"
	"github.com/onward-go/outbox/persistence"
	"github.com/onward-go/outbox/sqltx"
)

func TestBadOptionsAreReturnedByEveryCall(t *testing.T) {
	db := drivers["pure"].openNew(t)
	for want, outbox := range map[string]*sqltx.Outbox{
		"prefix":                         sqltx.New(db, sqltx.SQLite, sqltx.WithTablePrefix("no-identifier")),
		"schema":                         sqltx.New(db, sqltx.SQLite, sqltx.WithSchema("app")), // SQLite has none
		"async":                          sqltx.New(db, sqltx.SQLite, sqltx.WithAsynchronousCommit()),
		"payload":                        sqltx.New(db, sqltx.SQLite, sqltx.WithMaxPayload(0)),
		"option":                         sqltx.New(db, sqltx.SQLite, nil),
		"the *sql.DB is nil":             sqltx.New(nil, sqltx.SQLite),
		`no support for the database ""`: sqltx.New(db, ""),
	} {
		_, read := outbox.ReadAfter(t.Context(), persistence.Cursor{}, 1)
		for call, err := range map[string]error{
			"Atomically": outbox.Atomically(t.Context(), func(context.Context) error { return nil }),
			"Migrate":    outbox.Migrate(t.Context()),
			"ReadAfter":  read,
		} {
			require.ErrorIs(t, err, persistence.ErrInvalid, call)
			require.ErrorContains(t, err, want, call)
		}
		require.False(t, outbox.IsTransient(persistence.ErrInvalid))
	}
	require.Empty(t, ids(t, db, "(SELECT name AS id FROM sqlite_master)"))
}

func TestSchemaThatDoesNotFit(t *testing.T) {
	db := drivers["pure"].openNew(t)
	outbox := sqltx.New(db, sqltx.SQLite)
	_, err := outbox.ReadAfter(t.Context(), persistence.Cursor{}, 1)
	require.ErrorIs(t, err, persistence.ErrSchema)
	require.NoError(t, sqltx.Migrate(t.Context(), db, sqltx.SQLite))
	require.NoError(t, sqltx.Migrate(t.Context(), db, sqltx.SQLite), "a second time")
	require.NoError(t, outbox.Atomically(t.Context(), func(ctx context.Context) error {
		require.ErrorIs(t, outbox.Migrate(ctx), persistence.ErrInTransaction)
		return nil
	}))
}

func TestRetentionTakesItsOptions(t *testing.T) {
	db, _ := migrated(t, sqltx.WithTablePrefix("iam_"))
	outbox := sqltx.New(db, sqltx.SQLite, sqltx.WithTablePrefix("iam_"))
	keyed := event("a")
	keyed.DedupKey = "k"
	require.NoError(t, outbox.Atomically(t.Context(), func(ctx context.Context) error {
		return events.NewPublisher(outbox).Publish(ctx, keyed)
	}))
	long := time.Now().AddDate(0, -3, 0).UnixMicro()
	for _, table := range []string{"iam_outbox", "iam_outbox_dedup"} {
		_, err := db.ExecContext(t.Context(), "UPDATE "+table+" SET created_time = ?", long)
		require.NoError(t, err)
	}
	const day = 24 * time.Hour
	retain := func(opts ...sqltx.RetentionOption) (persistence.RetentionReport, error) {
		return sqltx.RunRetention(t.Context(), db, sqltx.SQLite, 30*day, append(opts, sqltx.WithTablePrefix("iam_"))...)
	}
	report, err := retain(sqltx.WithDryRun(), sqltx.WithNoConsumers())
	require.NoError(t, err)
	require.NotEmpty(t, report.Dropped)
	require.Equal(t, []string{"a"}, ids(t, db, "iam_outbox"))
	report, err = retain(sqltx.WithKeepKeys(365 * day))
	require.ErrorIs(t, err, persistence.ErrOwed, "nobody has said that there are no consumers")
	require.Empty(t, report.Dropped)
	require.Zero(t, report.PurgedKeys)
	report, err = retain(sqltx.WithNoConsumers(), sqltx.WithLockTimeout(time.Second))
	require.NoError(t, err)
	require.NotEmpty(t, report.Dropped)
	require.Equal(t, 1, report.PurgedKeys)
	require.Empty(t, ids(t, db, "iam_outbox"))
	for _, bad := range []sqltx.RetentionOption{nil, sqltx.Option(nil), sqltx.WithKeepKeys(0), sqltx.WithLockTimeout(0), sqltx.WithLockTimeout(-1)} {
		_, err := retain(bad)
		require.ErrorIs(t, err, persistence.ErrInvalid)
	}
}

func TestABusyDatabaseIsATransientFault(t *testing.T) {
	for name, d := range drivers {
		t.Run(name, func(t *testing.T) {
			path := t.TempDir() + "/outbox.db"
			outbox := sqltx.New(d.open(t, path), sqltx.SQLite)
			require.NoError(t, outbox.Migrate(t.Context()))
			pool := d.open(t, path)
			pool.SetMaxOpenConns(1)
			_, err := pool.ExecContext(t.Context(), "PRAGMA busy_timeout = 0")
			require.NoError(t, err)
			impatient := sqltx.New(pool, sqltx.SQLite)
			require.NoError(t, outbox.Atomically(t.Context(), func(context.Context) error {
				err := impatient.Atomically(t.Context(), func(context.Context) error { return nil })
				require.Error(t, err)
				require.True(t, impatient.IsTransient(err), err)
				return nil
			}))
		})
	}
}

// Whoever knows one face knows the other.
func TestFacesAreAlike(t *testing.T) {
	methods := func(outbox any) []string {
		var names []string
		for m := range reflect.TypeOf(outbox).Methods() {
			names = append(names, m.Name)
		}
		return names
	}
	own := slices.DeleteFunc(methods(&sqltx.Outbox{}), func(name string) bool { return name == "WithTx" }) // a function in gormtx
	require.Equal(t, methods(&gormtx.Outbox{}), own)
}
