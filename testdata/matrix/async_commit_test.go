package matrix

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/gormtx"
)

// Only the transactions of handlers may be on disk later.
func TestPostgresHandlersCommitAsynchronouslyIfAsked(t *testing.T) {
	db, plain := newPostgres(t)
	pool, err := db.DB()
	require.NoError(t, err)
	for want, outbox := range map[string]*gormtx.Outbox{"on": plain, "off": gormtx.New(db, gormtx.WithAsynchronousCommit())} {
		setting := func(ctx context.Context) (value string) {
			require.NoError(t, gormtx.DB(ctx, db).Raw("SHOW synchronous_commit").Scan(&value).Error)
			return value
		}
		d := events.NewDispatcher(outbox, outbox, outbox, outbox, events.WithName(want))
		seen := map[string]string{}
		require.NoError(t, d.Subscribe("t", want, func(ctx context.Context, _ events.Event) error {
			seen["handler"] = setting(ctx)
			return nil
		}))
		require.NoError(t, d.SubscribeBatch("t", want+" of batches", func(ctx context.Context, _ []events.Event) error {
			seen["batch"] = setting(ctx)
			return nil
		}))
		publish := func() {
			require.NoError(t, outbox.Atomically(t.Context(), func(ctx context.Context) error {
				require.NoError(t, events.NewPublisher(outbox).Publish(ctx, events.Event{Type: "t", AggregateType: "a", AggregateID: "1"},
					events.Event{Type: "t", AggregateType: "a", AggregateID: "2"}))
				require.Equal(t, "on", setting(ctx))
				return nil
			}))
		}
		_, err := d.RunOnce(t.Context(), 10)
		require.NoError(t, err)
		publish()
		pool.SetMaxOpenConns(1) // so the session is that of the handler
		n, err := d.RunOnce(t.Context(), 10)
		require.NoError(t, err)
		require.NotZero(t, n)
		require.Equal(t, map[string]string{"handler": want, "batch": want}, seen)
		require.Equal(t, "on", setting(t.Context()))
		pool.SetMaxOpenConns(0)
	}
}
