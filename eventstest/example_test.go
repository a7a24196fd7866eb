package eventstest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/eventstest"
	"github.com/onward-go/outbox/memstore"
)

// Publish, drain, assert.
func Example() {
	_ = func(t *testing.T) { // func TestSuspend(t *testing.T)
		outbox := eventstest.New(t)
		suspended := outbox.Record("iam.v1.UserSuspended")

		outbox.Publish(eventstest.Event("iam.v1.UserSuspended", eventstest.Aggregate("User", "u-1")))
		outbox.Drain()
		suspended.Want(t, events.Event{AggregateID: "u-1"})
	}
	// Output:
}

// revoke is a handler of yours. It writes to a table in memory, or to whatever
// your repository for tests has.
func revoke(keys *memstore.Table[string, string]) events.Handler {
	return func(ctx context.Context, evt events.Event) error {
		return keys.Put(ctx, evt.AggregateID, "revoked")
	}
}

// A handler is tested with the transaction, the account and the marker that it
// gets in production.
func ExampleOutbox() {
	TestRevoke := func(t *testing.T) {
		outbox := eventstest.New(t)
		keys := memstore.NewTable[string, string](outbox.Store)
		outbox.Subscribe("iam.v1.UserSuspended", revoke(keys))

		outbox.Publish(eventstest.Event("iam.v1.UserSuspended", eventstest.Aggregate("User", "u-1")))
		outbox.Drain()
		if status, _ := keys.Get(t.Context(), "u-1"); status != "revoked" {
			t.Errorf("the key is %q", status)
		}
	}
	_ = TestRevoke
	// Output:
}

// A recorder around a handler of yours tells what it has handled, and makes it
// fail.
func ExampleRecorder() {
	_ = func(t *testing.T) {
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
	// Output:
}

// A commit whose answer is lost: the dispatcher cannot know, and the marker
// keeps the effect from happening twice.
func ExampleFaults() {
	ctx := context.Background()
	store := memstore.New() // or your own
	var faults eventstest.Faults
	dispatcher := events.NewDispatcher(faults.Outbox(store), faults.Cursors(store), faults.Transactor(store), faults.Idempotency(store))
	var handled eventstest.Recorder
	_ = dispatcher.Subscribe("iam.v1.UserSuspended", "revoke-api-keys", handled.Handle)
	_ = store.Atomically(ctx, func(ctx context.Context) error {
		return events.NewPublisher(store).Publish(ctx, eventstest.Event("iam.v1.UserSuspended"))
	})

	faults.Lose("Atomically", eventstest.ErrLost)
	fmt.Println("first pass fails:", eventstest.Drain(ctx, dispatcher) != nil)
	fmt.Println("second pass:", eventstest.Drain(ctx, dispatcher))
	fmt.Println("effects:", len(handled.Events()))
	// Output:
	// first pass fails: true
	// second pass: <nil>
	// effects: 1
}
