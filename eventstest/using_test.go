package eventstest_test

import (
	"context"
	"errors"
	"testing"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/eventstest"
	"github.com/onward-go/outbox/memstore"
)

// The tests of a user, which docs/guide/testing.md shows.

func TestSuspend(t *testing.T) {
	outbox := eventstest.New(t)
	suspended := outbox.Record("iam.v1.UserSuspended")

	outbox.Publish(eventstest.Event("iam.v1.UserSuspended", eventstest.Aggregate("User", "u-1")))
	outbox.Drain()
	suspended.Want(t, events.Event{AggregateID: "u-1"})
}

// revoke is a handler of yours. It writes to a table in memory, or to whatever
// your repository for tests has.
func revoke(keys *memstore.Table[string, string]) events.Handler {
	return func(ctx context.Context, evt events.Event) error {
		return keys.Put(ctx, evt.AggregateID, "revoked")
	}
}

func TestRevoke(t *testing.T) {
	outbox := eventstest.New(t)
	keys := memstore.NewTable[string, string](outbox.Store)
	outbox.Subscribe("iam.v1.UserSuspended", revoke(keys))

	outbox.Publish(eventstest.Event("iam.v1.UserSuspended", eventstest.Aggregate("User", "u-1")))
	outbox.Drain()
	if status, _ := keys.Get(t.Context(), "u-1"); status != "revoked" {
		t.Errorf("the key is %q", status)
	}
}

func TestRevokeIsTriedAgain(t *testing.T) {
	outbox := eventstest.New(t)
	keys := memstore.NewTable[string, string](outbox.Store)
	var handled eventstest.Recorder
	outbox.Subscribe("iam.v1.UserSuspended", handled.Around(revoke(keys)))
	handled.FailWith(errors.New("the network is down"))

	outbox.Publish(eventstest.Event("iam.v1.UserSuspended", eventstest.ID("e-1")))
	if err := eventstest.Drain(t.Context(), outbox.Dispatcher); err == nil {
		t.Error("the first try succeeded")
	}
	outbox.Drain()
	handled.Want(t, events.Event{ID: "e-1"})
}
