package guide_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/eventstest"
	"github.com/onward-go/outbox/memstore"
	"github.com/onward-go/outbox/persistence"
	"github.com/onward-go/outbox/sqltx"
)

// A handler that reloads, and gives up where another try would not help.
func Example_reload() {
	ctx := context.Background()
	db, done := exampleDB()
	defer done()
	outbox := sqltx.New(db, sqltx.SQLite)
	_ = outbox.Migrate(ctx)
	dispatcher := events.NewDispatcher(outbox, outbox, outbox, outbox)

	tellSupport := func(ctx context.Context, evt events.Event) error {
		var status string
		err := sqltx.Tx(ctx).QueryRowContext(ctx, "SELECT status FROM users WHERE id = ?", evt.AggregateID).Scan(&status)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			return events.Permanent(fmt.Errorf("user %s does not exist", evt.AggregateID))
		case err != nil:
			return err // tried again
		case status != "suspended":
			return nil // restored meanwhile: nothing to tell
		}
		_, err = sqltx.Tx(ctx).ExecContext(ctx, "INSERT INTO mails (event_id, recipient) VALUES (?, 'support')", evt.ID)
		return err
	}

	fmt.Println(dispatcher.Subscribe("iam.v1.UserSuspended", "tell-support", tellSupport))
	_ = suspend(ctx, outbox, events.NewPublisher(outbox), "u-1")
	_, err := dispatcher.RunOnce(ctx, 100)
	var mails int
	_ = db.QueryRow("SELECT count(*) FROM mails").Scan(&mails)
	fmt.Println(mails, err)
	// Output:
	// <nil>
	// 1 <nil>
}

// Options for what a handler is like.
func Example_options() {
	outbox := memstore.New()
	dispatcher := events.NewDispatcher(outbox, outbox, outbox, outbox,
		events.WithMaxAttempts(8),
		events.WithBackoff(time.Second, time.Minute),
		events.WithHandlerTimeout(10*time.Second),
		events.WithConcurrency(16),
	)
	n, err := dispatcher.RunOnce(context.Background(), 100)
	fmt.Println(n, err)
	// Output: 0 <nil>
}

// Consumers that do not wait for each other.
func Example_consumers() {
	ctx := context.Background()
	outbox := memstore.New()
	indexUser := (&eventstest.Recorder{}).Handle
	audit := (&eventstest.Recorder{}).Handle

	search := events.NewDispatcher(outbox, outbox, outbox, outbox, events.WithName("search"))
	auditor := events.NewDispatcher(outbox, outbox, outbox, outbox, events.WithName("audit"), events.WithStartNow())
	err := errors.Join(
		search.Subscribe("iam.v1.UserSuspended", "index-user", indexUser),
		auditor.Subscribe("iam.v1.UserSuspended", "write-audit-log", audit),
	)

	_, err2 := search.RunOnce(ctx, 100)
	_, err3 := auditor.RunOnce(ctx, 100)
	fmt.Println(err, err2, err3)
	// Output: <nil> <nil> <nil>
}

// A cursor that is set back gives a handler history it has not had.
func Example_rewind() {
	ctx := context.Background()
	outbox := memstore.New()
	var old, fresh eventstest.Recorder
	publish := func(id string) {
		_ = outbox.Atomically(ctx, func(ctx context.Context) error {
			return events.NewPublisher(outbox).Publish(ctx, eventstest.Event("iam.v1.UserSuspended", eventstest.ID(id)))
		})
	}
	before := events.NewDispatcher(outbox, outbox, outbox, outbox)
	_ = before.Subscribe("iam.v1.UserSuspended", "revoke-api-keys", old.Handle)
	publish("e-1")
	_ = eventstest.Drain(ctx, before)

	dispatcher := events.NewDispatcher(outbox, outbox, outbox, outbox)
	_ = dispatcher.Subscribe("iam.v1.UserSuspended", "revoke-api-keys", old.Handle)
	_ = dispatcher.Subscribe("iam.v1.UserSuspended", "tell-support", fresh.Handle)
	_ = eventstest.Drain(ctx, dispatcher) // registers the new handler

	since := time.Now().AddDate(0, 0, -7)
	err := outbox.Rewind(ctx, events.DefaultName, persistence.Cursor{CreatedTime: since})

	fmt.Println(err, eventstest.Drain(ctx, dispatcher))
	fmt.Println(len(old.Events()), len(fresh.Events()))
	// Output:
	// <nil> <nil>
	// 1 1
}

// The account of an event goes with the context.
func Example_tenants() {
	ctx := context.Background()
	outbox := memstore.New()
	publisher := events.NewPublisher(outbox)
	dispatcher := events.NewDispatcher(outbox, outbox, outbox, outbox)
	_ = dispatcher.Subscribe("iam.v1.UserSuspended", "revoke-api-keys", func(ctx context.Context, evt events.Event) error {
		fmt.Println("in account", events.AccountID(ctx))
		return nil
	})

	ctx = events.WithAccountID(ctx, "acme") // in the middleware that knows who calls
	err := outbox.Atomically(ctx, func(ctx context.Context) error {
		return publisher.Publish(ctx, events.Event{Type: "iam.v1.UserSuspended", AggregateType: "User", AggregateID: "u-1"})
	})

	fmt.Println(err)
	_, _ = dispatcher.RunOnce(context.Background(), 100)
	// Output:
	// <nil>
	// in account acme
}

// mailer sends mails, each with an id by which it sends none twice.
type mailer struct{ sent map[string]bool }

func (m mailer) send(_ context.Context, id, recipient string) error {
	if !m.sent[id] {
		fmt.Println("to", recipient)
	}
	m.sent[id] = true
	return nil
}

// What cannot be rolled back has the event's id, so that the other side can tell
// a second time.
func Example_outside() {
	ctx := context.Background()
	outbox := memstore.New()
	dispatcher := events.NewDispatcher(outbox, outbox, outbox, outbox)
	mails := mailer{sent: map[string]bool{}}

	sendMail := func(ctx context.Context, evt events.Event) error {
		return mails.send(ctx, evt.ID, evt.AggregateID)
	}

	_ = dispatcher.Subscribe("iam.v1.UserSuspended", "mail-user", sendMail)
	_ = outbox.Atomically(ctx, func(ctx context.Context) error {
		return events.NewPublisher(outbox).Publish(ctx, eventstest.Event("iam.v1.UserSuspended", eventstest.Aggregate("User", "u-1")))
	})
	fmt.Println(eventstest.Drain(ctx, dispatcher))
	// Output:
	// to u-1
	// <nil>
}
