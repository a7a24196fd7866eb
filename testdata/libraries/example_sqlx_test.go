package libraries_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/jmoiron/sqlx"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/sqltx"
)

// Named parameters, lists and scans of sqlx work on the outbox's transaction.
func Example_sqlx() {
	ctx := context.Background()
	db, done := exampleDB(ctx)
	defer done()
	const id = "u-1"

	outbox := sqltx.New(db, sqltx.SQLite)
	publisher := events.NewPublisher(outbox)
	dispatcher := events.NewDispatcher(outbox, outbox, outbox, outbox)

	_ = dispatcher.Subscribe("iam.v1.UserSuspended", "revoke-api-keys", func(ctx context.Context, evt events.Event) error {
		rows, err := sqltx.Tx(ctx).QueryContext(ctx, "SELECT id, status FROM api_keys WHERE user_id = ?", evt.AggregateID)
		if err != nil {
			return err
		}
		defer rows.Close()
		var keys []struct{ ID, Status string }
		if err := sqlx.StructScan(rows, &keys); err != nil {
			return err
		}
		for _, key := range keys {
			query, args, err := sqlx.Named("UPDATE api_keys SET status = 'revoked' WHERE id = :id", key)
			if err != nil {
				return err
			}
			if _, err := sqltx.Tx(ctx).ExecContext(ctx, query, args...); err != nil {
				return err
			}
		}
		return nil
	})

	err := outbox.Atomically(ctx, func(ctx context.Context) error {
		if _, err := sqltx.Tx(ctx).ExecContext(ctx, "UPDATE users SET status = 'suspended' WHERE id = ?", id); err != nil {
			return err
		}
		return publisher.Publish(ctx, events.Event{Type: "iam.v1.UserSuspended", AggregateType: "User", AggregateID: id})
	})

	delivered, err2 := dispatcher.RunOnce(ctx, 100)
	var revoked int
	err3 := sqlx.NewDb(db, "sqlite").GetContext(ctx, &revoked, "SELECT count(*) FROM api_keys WHERE status = 'revoked'")
	fmt.Println(delivered, revoked, err, err2, err3)
	// Output: 1 2 <nil> <nil> <nil>
}

// Get, Select and NamedExec want a transaction of sqlx itself. The outbox takes part in
// one that sqlx has begun.
func Example_sqlxTransaction() {
	ctx := context.Background()
	pool, done := exampleDB(ctx)
	defer done()

	db := sqlx.NewDb(pool, "sqlite")
	outbox := sqltx.New(pool, sqltx.SQLite)
	publisher := events.NewPublisher(outbox)
	suspend := func(id string) error {
		tx, err := db.BeginTxx(ctx, nil)
		if err != nil {
			return err
		}
		inTx, err := outbox.WithTx(ctx, tx)
		if err == nil {
			_, err = tx.NamedExecContext(ctx, "UPDATE users SET status = 'suspended' WHERE id = :id", map[string]any{"id": id})
		}
		if err == nil {
			err = publisher.Publish(inTx, events.Event{Type: "iam.v1.UserSuspended", AggregateType: "User", AggregateID: id})
		}
		if err != nil {
			return errors.Join(err, tx.Rollback())
		}
		return tx.Commit()
	}

	err := suspend("u-1")
	var status string
	var recorded int
	err2 := db.GetContext(ctx, &status, "SELECT status FROM users WHERE id = 'u-1'")
	err3 := db.GetContext(ctx, &recorded, "SELECT count(*) FROM outbox")
	fmt.Println(status, recorded, err, err2, err3)
	// Output: suspended 1 <nil> <nil> <nil>
}
