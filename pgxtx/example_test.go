package pgxtx_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/persistence"
	"github.com/onward-go/outbox/pgxtx"
)

// examplePool returns the pool of a service. It connects when it is used.
func examplePool(ctx context.Context) *pgxpool.Pool {
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	return pool
}

func logErr(err error) { log.Print(err) }

// Suspending a user revokes the user's API keys.
func Example() {
	ctx := context.Background()
	pool := examplePool(ctx)
	defer pool.Close()

	const id = "u-1"
	if err := pgxtx.Migrate(ctx, pool); err != nil {
		fmt.Println(err)
		return
	}

	outbox := pgxtx.New(pool)
	publisher := events.NewPublisher(outbox)
	dispatcher := events.NewDispatcher(outbox, outbox, outbox, outbox)

	_ = dispatcher.Subscribe("iam.v1.UserSuspended", "revoke-api-keys", func(ctx context.Context, evt events.Event) error {
		_, err := pgxtx.Tx(ctx).Exec(ctx, "UPDATE api_keys SET status = 'revoked' WHERE user_id = $1", evt.AggregateID)
		return err
	})

	err := outbox.Atomically(ctx, func(ctx context.Context) error {
		if _, err := pgxtx.Tx(ctx).Exec(ctx, "UPDATE users SET status = 'suspended' WHERE id = $1", id); err != nil {
			return err
		}
		return publisher.Publish(ctx, events.Event{Type: "iam.v1.UserSuspended", AggregateType: "User", AggregateID: id})
	})

	delivered, err2 := dispatcher.RunOnce(ctx, 100) // or: go dispatcher.Poll(ctx, time.Second, 100, logErr)

	fmt.Println(err, err2, delivered)
}

// Publishing in a transaction that was begun with pgx itself.
func ExampleOutbox_WithTx() {
	ctx := context.Background()
	pool := examplePool(ctx)
	defer pool.Close()
	outbox := pgxtx.New(pool)
	publisher := events.NewPublisher(outbox)

	tx, err := pool.Begin(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer tx.Rollback(ctx)
	inTx, err := outbox.WithTx(ctx, tx)
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := publisher.Publish(inTx, events.Event{Type: "t", AggregateType: "User", AggregateID: "u-1"}); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(tx.Commit(ctx))
}

// What a scheduled job calls, once a day or so.
func ExampleRunRetention() {
	ctx := context.Background()
	pool := examplePool(ctx)
	defer pool.Close()

	report, err := pgxtx.RunRetention(ctx, pool, 90*24*time.Hour)
	for _, p := range report.Dropped {
		fmt.Println("dropped", p.Table, p.Name, "up to", p.To)
	}
	if errors.Is(err, persistence.ErrOwed) {
		fmt.Println("a dispatcher has fallen behind:", err)
	}
}

// A process that publishes wakes the dispatchers of all others, and its own.
func ExampleNotifier() {
	ctx := context.Background()
	pool := examplePool(ctx)
	defer pool.Close()
	outbox := pgxtx.New(pool)
	dispatcher := events.NewDispatcher(outbox, outbox, outbox, outbox)

	notifier := pgxtx.NewNotifier(pool, pgxtx.WithErrorHandler(logErr))
	publisher := events.NewPublisher(outbox, events.WithNotify(func() {
		dispatcher.Wake()
		notifier.Notify()
	}))
	defer notifier.Close(ctx)

	_ = outbox.Atomically(ctx, func(ctx context.Context) error {
		return publisher.Publish(ctx, events.Event{Type: "t", AggregateType: "User", AggregateID: "u-1"})
	})
}

// A dispatcher that other processes wake. It may poll seldom, and still should:
// a notification can get lost.
func ExampleListen() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	pool := examplePool(ctx)
	defer pool.Close()
	outbox := pgxtx.New(pool)
	dispatcher := events.NewDispatcher(outbox, outbox, outbox, outbox)

	go pgxtx.Listen(ctx, pool, dispatcher.Wake, pgxtx.WithErrorHandler(logErr))
	_ = dispatcher.Poll(ctx, 5*time.Second, 100, logErr)
}

// Outside of Atomically nothing is written.
func ExampleTx_outsideATransaction() {
	ctx := context.Background()
	_, err := pgxtx.Tx(ctx).Exec(ctx, "UPDATE users SET status = 'suspended'")
	fmt.Println(err)
	// Output: pgxtx: no transaction: call Tx inside Atomically, with the context that Atomically passes on
}
