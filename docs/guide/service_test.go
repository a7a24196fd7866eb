package guide_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/persistence"
	"github.com/onward-go/outbox/sqltx"
)

var logger = slog.New(slog.DiscardHandler)

// serve is a service, until ctx ends.
func serve(ctx context.Context, db *sql.DB, handle func(publish func(id string) error)) error {
	outbox := sqltx.New(db, sqltx.SQLite)
	if err := outbox.Migrate(ctx); err != nil {
		return err
	}
	dispatcher := events.NewDispatcher(outbox, outbox, outbox, outbox, events.WithLogger(logger))
	publisher := events.NewPublisher(outbox, events.WithNotify(dispatcher.Wake))
	if err := dispatcher.Subscribe("iam.v1.UserSuspended", "revoke-api-keys", revokeKeys); err != nil {
		return err
	}

	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	var background sync.WaitGroup
	background.Go(func() {
		if err := dispatcher.Poll(ctx, time.Second, 100, nil); err != nil {
			logger.Error("the dispatcher is set up wrongly", "error", err)
			stop()
		}
	})

	handle(func(id string) error { return suspend(ctx, outbox, publisher, id) })

	<-ctx.Done()      // and let your HTTP server shut down
	background.Wait() // handlers end, the cursor is saved, the lease released
	return nil
}

func revokeKeys(ctx context.Context, evt events.Event) error {
	_, err := sqltx.Tx(ctx).ExecContext(ctx, "UPDATE api_keys SET status = 'revoked' WHERE user_id = ?", evt.AggregateID)
	return err
}

func suspend(ctx context.Context, outbox *sqltx.Outbox, publisher *events.Publisher, id string) error {
	return outbox.Atomically(ctx, func(ctx context.Context) error {
		// The aggregate first: whoever else changes this user waits here.
		result, err := sqltx.Tx(ctx).ExecContext(ctx, "UPDATE users SET status = 'suspended' WHERE id = ? AND status = 'active'", id)
		if err != nil {
			return err
		}
		if n, err := result.RowsAffected(); n == 0 {
			return errors.Join(err, errors.New("there is no such active user"))
		}
		// Then the event.
		return publisher.Publish(ctx, events.Event{Type: "iam.v1.UserSuspended", AggregateType: "User", AggregateID: id})
	})
}

// A service from its start to its end.
func Example_service() {
	db, done := exampleDB()
	defer done()
	ctx, shutDown := context.WithCancel(context.Background())
	err := serve(ctx, db, func(publish func(id string) error) {
		fmt.Println(publish("u-1"))
		shutDown()
	})
	fmt.Println(err)
	fmt.Println(publishLate(db))
	// Output:
	// <nil>
	// <nil>
	// true
}

// publishLate publishes after the transaction.
func publishLate(db *sql.DB) bool {
	ctx := context.Background()
	publisher := events.NewPublisher(sqltx.New(db, sqltx.SQLite))
	err := publisher.Publish(ctx, events.Event{Type: "iam.v1.UserSuspended", AggregateType: "User", AggregateID: "u-1"})
	return errors.Is(err, persistence.ErrNoTransaction)
}

// What runs once the transaction has committed, and only then.
func Example_afterCommit() {
	ctx := context.Background()
	db, done := exampleDB()
	defer done()
	outbox := sqltx.New(db, sqltx.SQLite)

	err := outbox.Atomically(ctx, func(ctx context.Context) error {
		return persistence.AfterCommit(ctx, func(context.Context) { fmt.Println("forget what the cache has of the user") })
	})
	fmt.Println(err)
	// Output:
	// forget what the cache has of the user
	// <nil>
}

// authenticate asks the user, too, and not the key alone: keys of a suspended
// user live until the event is handled.
func authenticate(ctx context.Context, db *sql.DB, keyID string) (ok bool, err error) {
	err = db.QueryRowContext(ctx, `
SELECT k.status = 'live' AND u.status = 'active'
FROM api_keys AS k JOIN users AS u ON u.id = k.user_id WHERE k.id = ?`, keyID).Scan(&ok)
	return ok, err
}

// Between commit and effect the key is live, and lets nobody in.
func Example_window() {
	ctx := context.Background()
	db, done := exampleDB()
	defer done()
	outbox := sqltx.New(db, sqltx.SQLite)
	_ = outbox.Migrate(ctx)
	status := func() (s string) {
		_ = db.QueryRow("SELECT status FROM api_keys").Scan(&s)
		return s
	}
	fmt.Println(authenticate(ctx, db, "k-1"))
	fmt.Println(suspend(ctx, outbox, events.NewPublisher(outbox), "u-1"))
	fmt.Println(status())
	fmt.Println(authenticate(ctx, db, "k-1"))
	dispatcher := events.NewDispatcher(outbox, outbox, outbox, outbox)
	_ = dispatcher.Subscribe("iam.v1.UserSuspended", "revoke-api-keys", revokeKeys)
	_, _ = dispatcher.RunOnce(ctx, 100)
	fmt.Println(status())
	// Output:
	// true <nil>
	// <nil>
	// live
	// false <nil>
	// revoked
}
