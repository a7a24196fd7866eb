package entiam_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/sqltx"
	"github.com/onward-go/outbox/testdata/iam/domain"
	"github.com/onward-go/outbox/testdata/iam/entiam"
	"github.com/onward-go/outbox/testdata/iam/entiam/ent"
	"github.com/onward-go/outbox/testdata/iam/entiam/ent/apikey"
	"github.com/onward-go/outbox/testdata/iam/entiam/ent/outbox"
)

// exampleDB opens a database that goes with the returned function. It has the
// tables of ent and of the outbox, and a user with a live API key.
func exampleDB(ctx context.Context) (*sql.DB, *ent.Client, func()) {
	dir, err := os.MkdirTemp("", "outbox")
	if err != nil {
		panic(err)
	}
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "app.db")+
		"?_pragma=busy_timeout(10000)&_pragma=journal_mode(wal)&_pragma=foreign_keys(1)&_txlock=immediate")
	if err != nil {
		panic(err)
	}
	client := ent.NewClient(ent.Driver(entsql.OpenDB(dialect.SQLite, db)))
	err = errors.Join(
		entiam.Migrate(ctx, client),
		sqltx.Migrate(ctx, db, sqltx.SQLite),
		client.User.Create().SetID("u-1").SetStatus(domain.Active).Exec(ctx),
		client.APIKey.Create().SetID("k-1").SetUserID("u-1").SetRevoked(false).SetRevocations(0).Exec(ctx),
	)
	if err != nil {
		panic(err)
	}
	return db, client, func() {
		_ = client.Close()
		_ = os.RemoveAll(dir)
	}
}

// Suspending a user revokes the user's API keys.
func Example() {
	ctx := context.Background()
	db, client, done := exampleDB(ctx)
	defer done()
	const id = "u-1"

	outbox := sqltx.New(db, sqltx.SQLite)
	publisher := events.NewPublisher(outbox)
	dispatcher := events.NewDispatcher(outbox, outbox, outbox, outbox)

	_ = dispatcher.Subscribe("iam.v1.UserSuspended", "revoke-api-keys", func(ctx context.Context, evt events.Event) error {
		return entiam.Tx(ctx, dialect.SQLite).APIKey.Update().Where(apikey.UserID(evt.AggregateID)).SetRevoked(true).Exec(ctx)
	})

	err := outbox.Atomically(ctx, func(ctx context.Context) error {
		if err := entiam.Tx(ctx, dialect.SQLite).User.UpdateOneID(id).SetStatus(domain.Suspended).Exec(ctx); err != nil {
			return err
		}
		return publisher.Publish(ctx, events.Event{Type: "iam.v1.UserSuspended", AggregateType: "User", AggregateID: id})
	})

	delivered, err2 := dispatcher.RunOnce(ctx, 100) // or: go dispatcher.Poll(ctx, time.Second, 100, logErr)

	key, err3 := client.APIKey.Get(ctx, "k-1")
	fmt.Println(err, err2, err3, delivered, key.Revoked)
	// Output: <nil> <nil> <nil> 1 true
}

// suspend publishes in a transaction of ent's own.
func suspend(ctx context.Context, client *ent.Client, outbox *sqltx.Outbox, publisher *events.Publisher, id string) error {
	tx, err := client.Tx(ctx)
	if err != nil {
		return err
	}
	inTx, err := outbox.WithTx(ctx, tx)
	if err == nil {
		err = tx.User.UpdateOneID(id).SetStatus(domain.Suspended).Exec(ctx)
	}
	if err == nil {
		err = publisher.Publish(inTx, events.Event{Type: "iam.v1.UserSuspended", AggregateType: "User", AggregateID: id})
	}
	if err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// Publishing in a transaction of ent's own, and reading the outbox table with
// ent.
func Example_transaction() {
	ctx := context.Background()
	db, client, done := exampleDB(ctx)
	defer done()
	store := sqltx.New(db, sqltx.SQLite)
	publisher := events.NewPublisher(store)

	fmt.Println(ent.IsNotFound(suspend(ctx, client, store, publisher, "nobody")))
	fmt.Println(suspend(ctx, client, store, publisher, "u-1"))

	rows, err := client.Outbox.Query().Where(outbox.AggregateType("User")).Order(outbox.ByCreatedTime(), outbox.ByID()).All(ctx)
	for _, row := range rows {
		fmt.Println(row.EventType, row.AggregateID)
	}
	fmt.Println(err)
	// Output:
	// true
	// <nil>
	// iam.v1.UserSuspended u-1
	// <nil>
}
