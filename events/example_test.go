package events_test

import (
	"context"
	"fmt"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/memstore"
)

// A change in one aggregate causes work in another.
func Example() {
	ctx := context.Background()
	outbox := memstore.New() // or gormtx.New(db)
	users := memstore.NewTable[string, string](outbox)
	keys := memstore.NewTable[string, string](outbox)
	publisher := events.NewPublisher(outbox)

	dispatcher := events.NewDispatcher(outbox, outbox, outbox, outbox)
	_ = dispatcher.Subscribe("iam.v1.UserSuspended", "revoke-api-keys", func(ctx context.Context, evt events.Event) error {
		return keys.Put(ctx, evt.AggregateID, "revoked") // in a transaction of its own
	})

	err := outbox.Atomically(ctx, func(ctx context.Context) error {
		if err := users.Put(ctx, "user-1", "suspended"); err != nil {
			return err
		}
		return publisher.Publish(ctx, events.Event{
			Type: "iam.v1.UserSuspended", AggregateType: "User", AggregateID: "user-1",
		})
	})
	fmt.Println("suspended:", err)

	n, err := dispatcher.RunOnce(ctx, 100) // or: go dispatcher.Poll(ctx, time.Second, 100, onError)
	key, _ := keys.Get(ctx, "user-1")
	fmt.Println("delivered:", n, err, key)
	// Output:
	// suspended: <nil>
	// delivered: 1 <nil> revoked
}

func ExamplePublisher_Publish_outsideATransaction() {
	publisher := events.NewPublisher(memstore.New())
	err := publisher.Publish(context.Background(), events.Event{
		Type: "iam.v1.UserSuspended", AggregateType: "User", AggregateID: "user-1",
	})
	fmt.Println(err)
	// Output:
	// publish: memstore: no transaction: call it inside Atomically, with the context that Atomically passes on
}

func ExampleWithAccountID() {
	ctx := events.WithAccountID(context.Background(), "account-7")
	fmt.Println(events.AccountID(ctx))
	// Output: account-7
}
