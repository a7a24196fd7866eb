package iam_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/internal/blindstore"
	"github.com/onward-go/outbox/persistence"
	"github.com/onward-go/outbox/testdata/iam/app"
	"github.com/onward-go/outbox/testdata/iam/domain"
)

// sevenColumns are the columns of the outbox table.
var sevenColumns = []string{"id", "account_id", "aggregate_type", "aggregate_id", "event_type", "payload", "created_time"}

func TestKeysAreRevokedByDispatch(t *testing.T) {
	everywhere(t, func(t *testing.T, w wiring) {
		f := w.open(t)
		f.register(t, "ada")
		f.register(t, "bob")
		require.NoError(t, f.app().Suspend(t.Context(), "ada"))
		require.Equal(t, domain.Suspended, f.status(t, "ada"))
		f.wantKeys(t, "ada", 0)

		f.wantPass(t, f.dispatcher(t, f.outbox), 1)
		f.wantKeys(t, "ada", 1)
		f.wantKeys(t, "bob", 0)
		require.Equal(t, domain.Active, f.status(t, "bob"))
	})
}

func TestCommitWritesOneRow(t *testing.T) {
	everywhere(t, func(t *testing.T, w wiring) {
		f := w.open(t)
		f.register(t, "ada")
		f.wantEvents(t, 0)
		require.NoError(t, f.app().Suspend(events.WithAccountID(t.Context(), "acme"), "ada"))

		columns, rows := f.table(t)
		require.Equal(t, sevenColumns, columns)
		require.Len(t, rows, 1)
		require.NotEmpty(t, rows[0]["id"])
		require.NotEmpty(t, rows[0]["created_time"])
		require.Equal(t, map[string]string{
			"id":             rows[0]["id"],
			"account_id":     "acme",
			"aggregate_type": "User",
			"aggregate_id":   "ada",
			"event_type":     "iam.v1.UserSuspended",
			"payload":        "ada",
			"created_time":   rows[0]["created_time"],
		}, rows[0])

		// Delivery leaves the table as it is.
		f.wantPass(t, f.dispatcher(t, f.outbox), 1)
		_, after := f.table(t)
		require.Equal(t, rows, after)
	})
}

func TestRollbackDiscardsTheEvent(t *testing.T) {
	errChangedMind := errors.New("changed my mind")
	everywhere(t, func(t *testing.T, w wiring) {
		f := w.open(t)
		f.register(t, "ada")
		err := f.outbox.Atomically(t.Context(), func(ctx context.Context) error {
			if err := f.app().Suspend(ctx, "ada"); err != nil {
				return err
			}
			user, err := f.ports.Users.Find(ctx, "ada")
			assert.NoError(t, err)
			assert.Equal(t, domain.Suspended, user.Status)
			return errChangedMind
		})
		require.ErrorIs(t, err, errChangedMind)

		f.wantEvents(t, 0)
		require.Equal(t, domain.Active, f.status(t, "ada"))
		f.wantPass(t, f.dispatcher(t, f.outbox), 0)
		f.wantKeys(t, "ada", 0)

		require.NoError(t, f.app().Suspend(t.Context(), "ada"))
		f.wantEvents(t, 1)
	})
}

func TestSuspendedTwice(t *testing.T) {
	everywhere(t, func(t *testing.T, w wiring) {
		f := w.open(t)
		f.register(t, "ada")
		require.ErrorIs(t, f.app().Suspend(t.Context(), "eve"), domain.ErrNotFound)

		// At once: the user's row decides who is first.
		results := make(chan error, 2)
		for range cap(results) {
			go func() { results <- f.app().Suspend(t.Context(), "ada") }()
		}
		first, second := <-results, <-results
		if first != nil {
			first, second = second, first
		}
		require.NoError(t, first)
		require.ErrorIs(t, second, domain.ErrAlreadySuspended)
		f.wantEvents(t, 1)
	})
}

func TestPublishOutsideATransaction(t *testing.T) {
	everywhere(t, func(t *testing.T, w wiring) {
		f := w.open(t)
		evt := events.Event{Type: app.UserSuspended, AggregateType: app.UserAggregate, AggregateID: "ada"}
		require.ErrorIs(t, f.ports.Publisher.Publish(t.Context(), evt), persistence.ErrNoTransaction)

		// A context that has outlived its transaction is outside, too.
		var outlived context.Context
		require.NoError(t, f.outbox.Atomically(t.Context(), func(ctx context.Context) error {
			outlived = ctx
			return nil
		}))
		require.ErrorIs(t, f.ports.Publisher.Publish(outlived, evt), persistence.ErrNoTransaction)
		require.ErrorIs(t, f.ports.Users.Save(outlived, domain.NewUser("ada")), persistence.ErrNoTransaction)
		f.wantEvents(t, 0)
	})
}

func TestRewoundCursor(t *testing.T) {
	everywhere(t, func(t *testing.T, w wiring) {
		f := w.open(t)
		for _, user := range []string{"ada", "bob"} {
			f.register(t, user)
			require.NoError(t, f.app().Suspend(t.Context(), user))
		}
		wantKeys := func(revocations int) {
			t.Helper()
			f.wantKeys(t, "ada", revocations)
			f.wantKeys(t, "bob", revocations)
		}
		d := f.dispatcher(t, f.outbox)
		f.wantPass(t, d, 2)
		f.wantPass(t, d, 0)
		wantKeys(1)

		f.rewind(t)
		f.wantPass(t, d, 2)
		wantKeys(1)

		f.rewind(t)
		f.wantPass(t, f.dispatcher(t, blindstore.New(f.outbox)), 2)
		wantKeys(1)

		// The control: without markers the effect would show.
		f.rewind(t)
		f.wantPass(t, f.dispatcher(t, forgetful{}), 2)
		wantKeys(2)
	})
}
