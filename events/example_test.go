package events_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/memstore"
	"github.com/onward-go/outbox/persistence"
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

// A typed handler gets the payload decoded, and middleware is around all handlers.
func ExampleJSON() {
	ctx := context.Background()
	outbox := memstore.New()
	dispatcher := events.NewDispatcher(outbox, outbox, outbox, outbox)
	dispatcher.Use(func(next events.Handler) events.Handler {
		return func(ctx context.Context, evt events.Event) error {
			err := next(ctx, evt)
			fmt.Println("handled", evt.Type, err)
			return err
		}
	})
	type suspended struct{ Reason string }
	err := dispatcher.Subscribe("iam.v1.UserSuspended", "tell-support", events.JSON(func(ctx context.Context, p suspended, evt events.Event) error {
		fmt.Println(evt.AggregateID, "is suspended:", p.Reason)
		return nil
	}))
	if err != nil {
		fmt.Println(err)
	}

	_ = outbox.Atomically(ctx, func(ctx context.Context) error {
		return events.NewPublisher(outbox).Publish(ctx, events.Event{
			Type: "iam.v1.UserSuspended", AggregateType: "User", AggregateID: "user-1", Payload: []byte(`{"Reason": "fraud"}`),
		})
	})
	_, _ = dispatcher.RunOnce(ctx, 100)
	// Output:
	// user-1 is suspended: fraud
	// handled iam.v1.UserSuspended <nil>
}

// A handler of batches can do the work of many events by one statement.
func ExampleDispatcher_SubscribeBatch() {
	ctx := context.Background()
	outbox := memstore.New()
	dispatcher := events.NewDispatcher(outbox, outbox, outbox, outbox, events.WithConcurrency(1))
	err := dispatcher.SubscribeBatch("iam.v1.UserSuspended", "search-index", func(ctx context.Context, evts []events.Event) error {
		ids := make([]string, len(evts))
		for i, evt := range evts {
			ids[i] = evt.AggregateID
		}
		fmt.Println("DELETE FROM search_index WHERE user_id IN", ids)
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}

	publisher := events.NewPublisher(outbox)
	_ = outbox.Atomically(ctx, func(ctx context.Context) error {
		for _, id := range []string{"user-1", "user-2", "user-3"} {
			if err := publisher.Publish(ctx, events.Event{Type: "iam.v1.UserSuspended", AggregateType: "User", AggregateID: id}); err != nil {
				return err
			}
		}
		return nil
	})
	fmt.Println(dispatcher.RunOnce(ctx, 100))
	// Output:
	// DELETE FROM search_index WHERE user_id IN [user-1 user-2 user-3]
	// 3 <nil>
}

// A dead letter is replayed once its handler has been mended.
func ExampleDispatcher_Replay() {
	ctx := context.Background()
	outbox := memstore.New()
	mended := false
	dispatcher := events.NewDispatcher(outbox, outbox, outbox, outbox)
	_ = dispatcher.Subscribe("iam.v1.UserSuspended", "revoke-api-keys", func(context.Context, events.Event) error {
		if !mended {
			return events.Permanent(errors.New("no such column"))
		}
		return nil
	})
	_ = outbox.Atomically(ctx, func(ctx context.Context) error {
		return events.NewPublisher(outbox).Publish(ctx, events.Event{
			Type: "iam.v1.UserSuspended", AggregateType: "User", AggregateID: "user-1",
		})
	})
	_, _ = dispatcher.RunOnce(ctx, 100)

	mended = true
	letters := events.NewDeadLetters(outbox, outbox)
	dead, err := letters.List(ctx, persistence.DeadLetterQuery{State: persistence.DeadLetterDead, Limit: 100})
	for _, letter := range dead {
		fmt.Println(letter.Record.AggregateID, letter.LastError)
		fmt.Println("replayed:", dispatcher.Replay(ctx, letter.Marker()))
		fmt.Println("again:", errors.Is(dispatcher.Replay(ctx, letter.Marker()), events.ErrLetterState))
	}
	fmt.Println(len(dead), err)
	// Output:
	// user-1 no such column
	// replayed: <nil>
	// again: true
	// 1 <nil>
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
