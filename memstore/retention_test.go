package memstore_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/memstore"
	"github.com/onward-go/outbox/persistence"
)

// Two years of a service pass within the test.
func TestRetention(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		store := memstore.New()
		publish := func(id string) {
			require.NoError(t, store.Atomically(ctx, func(ctx context.Context) error {
				return events.NewPublisher(store).Publish(ctx, events.Event{ID: id, Type: "t", AggregateType: "a", AggregateID: "1"})
			}))
		}
		left := func() (ids []string) {
			records, err := store.ReadAfter(ctx, persistence.Cursor{}, 10)
			require.NoError(t, err)
			for _, r := range records {
				ids = append(ids, r.ID)
			}
			return ids
		}
		const month = 30 * 24 * time.Hour
		publish("old")
		time.Sleep(23 * month)
		publish("new")
		time.Sleep(month)

		_, err := persistence.Retain(ctx, store, 6*month, persistence.RetentionOptions{})
		require.ErrorIs(t, err, persistence.ErrOwed, "nobody has read it")
		require.Equal(t, []string{"old", "new"}, left())

		applied := 0
		d := events.NewDispatcher(store, store, store, store, events.WithName("billing"))
		require.NoError(t, d.Subscribe("t", "count", func(context.Context, events.Event) error { applied++; return nil }))
		require.NoError(t, store.Create(ctx, "billing", persistence.Cursor{}))
		report, err := persistence.Retain(ctx, store, 6*month, persistence.RetentionOptions{})
		require.ErrorIs(t, err, persistence.ErrOwed)
		require.ErrorContains(t, err, `"billing"`)
		require.Empty(t, report.Dropped)
		require.Equal(t, []string{"old", "new"}, left())

		_, err = d.RunOnce(ctx, 10)
		require.NoError(t, err)
		report, err = persistence.Retain(ctx, store, 6*month, persistence.RetentionOptions{DryRun: true})
		require.NoError(t, err)
		require.Len(t, report.Dropped, 1)
		require.Equal(t, []string{"old", "new"}, left(), "a dry run")
		again, err := persistence.Retain(ctx, store, 6*month, persistence.RetentionOptions{})
		require.NoError(t, err)
		require.Equal(t, report, again)
		require.Equal(t, []string{"new"}, left())

		// The marker of what is left is left.
		require.NoError(t, store.Rewind(ctx, "billing", persistence.Cursor{}))
		_, err = d.RunOnce(ctx, 10)
		require.NoError(t, err)
		require.Equal(t, 2, applied)

		// What is younger than the audit window stays, whatever is asked.
		publish("now")
		require.NoError(t, store.Forget(ctx, "billing"))
		_, err = persistence.Retain(ctx, store, 0, persistence.RetentionOptions{NoConsumers: true})
		require.NoError(t, err)
		require.Equal(t, []string{"now"}, left())
	})
}

// Whoever was left behind of an event still has to see it.
func TestRetentionKeepsWhatAHandlerWasLeftBehindOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		store := memstore.New()
		require.NoError(t, store.Create(ctx, "billing", persistence.Cursor{}))
		late := persistence.Subscription{EventType: "t", Handler: "late"}
		require.NoError(t, store.Register(ctx, "billing", late))
		require.NoError(t, store.Atomically(ctx, func(ctx context.Context) error {
			return store.Append(ctx, persistence.Record{ID: "a", EventType: "t", AggregateType: "a", AggregateID: "1"})
		}))
		time.Sleep(2 * persistence.AuditWindow)
		state, err := store.Load(ctx, "billing")
		require.NoError(t, err)
		progress := persistence.Progress{Cursor: persistence.Cursor{CreatedTime: time.Now()}}
		require.NoError(t, store.Save(ctx, state.Lease, progress))
		_, err = persistence.Retain(ctx, store, 0, persistence.RetentionOptions{})
		require.ErrorIs(t, err, persistence.ErrOwed)
		for _, named := range []string{`"billing"`, `"late"`, `"t"`, "deploy"} {
			require.ErrorContains(t, err, named)
		}
		progress.CaughtUp = []persistence.Subscription{late}
		require.NoError(t, store.Save(ctx, state.Lease, progress))
		report, err := persistence.Retain(ctx, store, 0, persistence.RetentionOptions{})
		require.NoError(t, err)
		require.Len(t, report.Dropped, 1)
	})
}
