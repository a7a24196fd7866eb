package sqltx_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	_ "modernc.org/sqlite"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/persistence"
	"github.com/onward-go/outbox/sqltx"
)

// exampleDB opens a database that goes with the returned function.
func exampleDB() (*sql.DB, func()) {
	dir, err := os.MkdirTemp("", "outbox")
	if err != nil {
		panic(err)
	}
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "app.db")+"?_pragma=busy_timeout(10000)&_pragma=journal_mode(wal)")
	if err != nil {
		panic(err)
	}
	_, err = db.Exec(`
CREATE TABLE users (id TEXT PRIMARY KEY, status TEXT NOT NULL);
CREATE TABLE api_keys (id TEXT PRIMARY KEY, user_id TEXT NOT NULL, status TEXT NOT NULL);
INSERT INTO users VALUES ('u-1', 'active');
INSERT INTO api_keys VALUES ('k-1', 'u-1', 'live')`)
	if err != nil {
		panic(err)
	}
	return db, func() {
		_ = db.Close()
		_ = os.RemoveAll(dir)
	}
}

// Suspending a user revokes the user's API keys.
func Example() {
	ctx := context.Background()
	db, done := exampleDB()
	defer done()

	const id = "u-1"
	if err := sqltx.Migrate(ctx, db, sqltx.SQLite); err != nil {
		fmt.Println(err)
		return
	}

	outbox := sqltx.New(db, sqltx.SQLite)
	publisher := events.NewPublisher(outbox)
	dispatcher := events.NewDispatcher(outbox, outbox, outbox, outbox)

	_ = dispatcher.Subscribe("iam.v1.UserSuspended", "revoke-api-keys", func(ctx context.Context, evt events.Event) error {
		_, err := sqltx.Tx(ctx).ExecContext(ctx, "UPDATE api_keys SET status = 'revoked' WHERE user_id = ?", evt.AggregateID)
		return err
	})

	err := outbox.Atomically(ctx, func(ctx context.Context) error {
		if _, err := sqltx.Tx(ctx).ExecContext(ctx, "UPDATE users SET status = 'suspended' WHERE id = ?", id); err != nil {
			return err
		}
		return publisher.Publish(ctx, events.Event{Type: "iam.v1.UserSuspended", AggregateType: "User", AggregateID: id})
	})

	delivered, err2 := dispatcher.RunOnce(ctx, 100) // or: go dispatcher.Poll(ctx, time.Second, 100, logErr)

	var status string
	_ = db.QueryRow("SELECT status FROM api_keys").Scan(&status)
	fmt.Println(err, err2, delivered, status)
	// Output: <nil> <nil> 1 revoked
}

// Publishing in a transaction that was begun with database/sql itself.
func ExampleOutbox_WithTx() {
	ctx := context.Background()
	db, done := exampleDB()
	defer done()
	outbox := sqltx.New(db, sqltx.SQLite)
	_ = outbox.Migrate(ctx)
	publisher := events.NewPublisher(outbox)

	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer tx.Rollback()
	inTx, err := outbox.WithTx(ctx, tx)
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := publisher.Publish(inTx, events.Event{Type: "t", AggregateType: "User", AggregateID: "u-1"}); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(tx.Commit())
	// Output: <nil>
}

// What a scheduled job calls, once a day or so.
func ExampleRunRetention() {
	ctx := context.Background()
	db, done := exampleDB()
	defer done()
	_ = sqltx.Migrate(ctx, db, sqltx.SQLite)

	report, err := sqltx.RunRetention(ctx, db, sqltx.SQLite, 90*24*time.Hour)
	for _, p := range report.Dropped {
		fmt.Println("dropped", p.Table, p.Name, "up to", p.To)
	}
	if errors.Is(err, persistence.ErrOwed) {
		fmt.Println("a dispatcher has fallen behind:", err)
	}
	fmt.Println(len(report.Dropped), err)
	// Output: 0 <nil>
}

// Outside of Atomically nothing is written.
func ExampleTx_outsideATransaction() {
	ctx := context.Background()
	_, err := sqltx.Tx(ctx).ExecContext(ctx, "UPDATE users SET status = 'suspended'")
	fmt.Println(err)
	// Output: sqltx: no transaction: call Tx inside Atomically, with the context that Atomically passes on
}
