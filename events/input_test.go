package events_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/memstore"
	"github.com/onward-go/outbox/persistence"
)

func nothing(context.Context, events.Event) error { return nil }

func TestBadOptionsAndSubscriptionsAreReturnedJoinedBeforeAnythingIsRead(t *testing.T) {
	store := memstore.New()
	publish(t, store, event("a"))
	d := events.NewDispatcher(store, nil, store, store,
		events.WithName(""), events.WithMaxAttempts(0))
	// Subscribe may be called as a statement; its errors are kept.
	for _, bad := range []func() error{
		func() error { return d.Subscribe("", "h", nothing) },
		func() error { return d.Subscribe("t", "", nothing) },
		func() error { return d.Subscribe("t", strings.Repeat("x", 129), nothing) },
		func() error { return d.Subscribe("t", "nil", nil) },
	} {
		require.ErrorIs(t, bad(), persistence.ErrInvalid)
	}
	require.NoError(t, d.Subscribe("t", "twice", nothing))
	require.ErrorIs(t, d.Subscribe("t", "twice", nothing), persistence.ErrInvalid)
	require.NoError(t, d.Subscribe("other", "twice", nothing))

	_, runErr := d.RunOnce(t.Context(), 0)
	pollErr := d.Poll(t.Context(), 0, 0, nil)
	for _, err := range []error{runErr, pollErr} {
		require.ErrorIs(t, err, persistence.ErrInvalid)
		for _, want := range []string{
			"cursor store is nil", "dispatcher name is empty", "max attempts is 0", "event type is empty",
			"handler name is empty", "handler name is 129 bytes, the limit is 128", `handler "nil" is nil`,
			`handler "twice" is subscribed already`, "limit is 0",
		} {
			require.ErrorContains(t, err, want)
		}
	}
	require.ErrorContains(t, pollErr, "poll interval is 0s")
	states, err := store.ListCursors(t.Context())
	require.NoError(t, err)
	require.Empty(t, states)
}

func TestAPublisherWithoutAStoreOrWithANilOptionRefuses(t *testing.T) {
	withoutOption := events.NewPublisher(memstore.New(), events.WithNotify(func() {}), nil)
	err := withoutOption.Publish(t.Context(), event("a"))
	require.ErrorIs(t, err, persistence.ErrInvalid)
	require.ErrorContains(t, err, "option 1 of the publisher is nil")
	require.ErrorIs(t, events.NewPublisher(nil).Publish(t.Context(), event("a")), persistence.ErrInvalid)
}

func TestAccountComesFromTheContext(t *testing.T) {
	store := memstore.New()
	publisher := events.NewPublisher(store)
	require.NoError(t, store.Atomically(events.WithAccountID(t.Context(), "of-context"), func(ctx context.Context) error {
		own := event("own")
		own.AccountID = "of-event"
		return publisher.Publish(ctx, event("default"), own)
	}))
	records, err := store.ReadAfter(t.Context(), persistence.Cursor{}, 10)
	require.NoError(t, err)
	require.Equal(t, "of-context", records[0].AccountID)
	require.Equal(t, "of-event", records[1].AccountID)
	require.Empty(t, events.AccountID(t.Context()))
}

func TestNewIDIsAMonotonicUUIDv7(t *testing.T) {
	before := time.Now().UnixMilli()
	last := ""
	for range 100_000 {
		id := events.NewID()
		require.Greater(t, id, last)
		last = id
	}
	require.Regexp(t, `^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`, last)
	var millis int64
	for _, c := range strings.ReplaceAll(last[:13], "-", "") {
		millis = millis<<4 | int64(strings.IndexRune("0123456789abcdef", c))
	}
	require.InDelta(t, before, millis, 60_000)
}
