package eventstest_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/eventstest"
	"github.com/onward-go/outbox/memstore"
)

// A recorder around a handler tells what it has done, and makes it fail.
func ExampleRecorder() {
	ctx := context.Background()
	store := memstore.New()
	keys := memstore.NewTable[string, string](store)
	var handled eventstest.Recorder
	dispatcher := events.NewDispatcher(store, store, store, store)
	_ = dispatcher.Subscribe("iam.v1.UserSuspended", "revoke-api-keys", handled.Around(revoke(keys)))
	_ = store.Atomically(ctx, func(ctx context.Context) error {
		return events.NewPublisher(store).Publish(ctx, eventstest.Event("iam.v1.UserSuspended"))
	})

	handled.FailWith(errors.New("the network is down"))
	fmt.Println("the first try fails:", eventstest.Drain(ctx, dispatcher) != nil)
	fmt.Println("the second:", eventstest.Drain(ctx, dispatcher))
	fmt.Println("tries:", handled.Tries(), "effects:", len(handled.Events()))
	// Output:
	// the first try fails: true
	// the second: <nil>
	// tries: 2 effects: 1
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
