package events_test

import (
	"context"
	"fmt"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/memstore"
)

func ExampleWithObserver() {
	outbox := memstore.New()

	dispatcher := events.NewDispatcher(outbox, outbox, outbox, outbox, events.WithObserver(events.Observer{
		Delivered:    func(i events.DeliveryInfo) { fmt.Println("delivered", i.EventType, "to", i.Handler) },
		DeadLettered: func(i events.DeliveryInfo) { fmt.Println("dead", i.EventID, i.Err) },
	}))

	_ = dispatcher.Subscribe("iam.v1.UserSuspended", "revoke-keys", func(context.Context, events.Event) error { return nil })
	_ = outbox.Atomically(context.Background(), func(ctx context.Context) error {
		return events.NewPublisher(outbox).Publish(ctx, events.Event{Type: "iam.v1.UserSuspended", AggregateType: "User", AggregateID: "1"})
	})
	_, _ = dispatcher.RunOnce(context.Background(), 10)
	// Output: delivered iam.v1.UserSuspended to revoke-keys
}

func ExampleDispatcher_Status() {
	ctx := context.Background()
	outbox := memstore.New()
	dispatcher := events.NewDispatcher(outbox, outbox, outbox, outbox)
	_, _ = dispatcher.RunOnce(ctx, 10)

	status, err := dispatcher.Status(ctx)
	if err != nil {
		panic(err)
	}
	fmt.Println("after the cursor:", status.After.N, "lag:", status.Lag)
	if w := status.Window; w != nil && w.HeldBy == events.HeldByEvent {
		fmt.Println("the cursor waits for event", w.Oldest.Event.ID)
	}
	// Output: after the cursor: 0 lag: 0s
}
