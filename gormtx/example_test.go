package gormtx_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"gorm.io/driver/sqlite"
	"gorm.io/gorm"
	_ "modernc.org/sqlite"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/gormtx"
	"github.com/onward-go/outbox/persistence"
)

// exampleDB opens a database that goes with the returned function.
func exampleDB() (*gorm.DB, func()) {
	dir, err := os.MkdirTemp("", "outbox")
	if err != nil {
		panic(err)
	}
	db, err := gorm.Open(sqlite.Dialector{
		DriverName: "sqlite",
		DSN:        "file:" + filepath.Join(dir, "app.db") + "?_pragma=busy_timeout(10000)&_pragma=journal_mode(wal)",
	}, &gorm.Config{})
	if err != nil {
		panic(err)
	}
	return db, func() {
		if pool, err := db.DB(); err == nil {
			_ = pool.Close()
		}
		_ = os.RemoveAll(dir)
	}
}

type User struct{ ID, Status string }

type APIKey struct{ ID, UserID, Status string }

// Suspending a user revokes the user's API keys.
func Example() {
	ctx := context.Background()
	db, done := exampleDB()
	defer done()
	_ = db.AutoMigrate(&User{}, &APIKey{})
	db.Create(&User{"u-1", "active"})
	db.Create(&APIKey{"k-1", "u-1", "live"})

	const id = "u-1"
	if err := gormtx.Migrate(ctx, db); err != nil {
		fmt.Println(err)
		return
	}

	outbox := gormtx.New(db)
	publisher := events.NewPublisher(outbox)
	dispatcher := events.NewDispatcher(outbox, outbox, outbox, outbox)

	_ = dispatcher.Subscribe("iam.v1.UserSuspended", "revoke-api-keys", func(ctx context.Context, evt events.Event) error {
		return gormtx.Tx(ctx).Model(&APIKey{}).Where("user_id = ?", evt.AggregateID).Update("status", "revoked").Error
	})

	err := outbox.Atomically(ctx, func(ctx context.Context) error {
		if err := gormtx.Tx(ctx).Model(&User{}).Where("id = ?", id).Update("status", "suspended").Error; err != nil {
			return err
		}
		return publisher.Publish(ctx, events.Event{Type: "iam.v1.UserSuspended", AggregateType: "User", AggregateID: id})
	})

	delivered, err2 := dispatcher.RunOnce(ctx, 100) // or: go dispatcher.Poll(ctx, time.Second, 100, logErr)

	var key APIKey
	db.First(&key)
	fmt.Println(err, err2, delivered, key.Status)
	// Output: <nil> <nil> 1 revoked
}

// Publishing in a transaction that was opened with GORM itself.
func ExampleWithTx() {
	db, done := exampleDB()
	defer done()
	outbox := gormtx.New(db)
	_ = outbox.Migrate(context.Background())
	publisher := events.NewPublisher(outbox)
	err := db.Transaction(func(tx *gorm.DB) error {
		ctx, err := gormtx.WithTx(context.Background(), tx)
		if err != nil {
			return err
		}
		return publisher.Publish(ctx, events.Event{Type: "t", AggregateType: "User", AggregateID: "u-1"})
	})
	fmt.Println(err)
	// Output: <nil>
}

// A command that is run again, since its caller has lost the answer, emits its
// event once.
func Example_dedupKey() {
	ctx := context.Background()
	db, done := exampleDB()
	defer done()
	outbox := gormtx.New(db)
	_ = outbox.Migrate(ctx)
	_ = db.AutoMigrate(&User{})
	db.Create(&User{"u-1", "active"})
	publisher := events.NewPublisher(outbox)

	suspend := func(id, requestID string) error {
		return outbox.Atomically(ctx, func(ctx context.Context) error {
			if err := gormtx.Tx(ctx).Model(&User{}).Where("id = ?", id).Update("status", "suspended").Error; err != nil {
				return err
			}
			return publisher.Publish(ctx, events.Event{
				Type: "iam.v1.UserSuspended", AggregateType: "User", AggregateID: id,
				DedupKey: "suspend:" + requestID,
			})
		})
	}

	for range 2 {
		err := suspend("u-1", "request-7")
		if errors.Is(err, persistence.ErrDuplicate) {
			fmt.Println("done before")
		} else {
			fmt.Println(err)
		}
	}
	// Output:
	// <nil>
	// done before
}

// What a scheduled job calls, once a day or so.
func ExampleRunRetention() {
	ctx := context.Background()
	db, done := exampleDB()
	defer done()
	_ = gormtx.Migrate(ctx, db)

	report, err := gormtx.RunRetention(ctx, db, 90*24*time.Hour)
	for _, p := range report.Dropped {
		fmt.Println("dropped", p.Table, p.Name, "up to", p.To)
	}
	if errors.Is(err, persistence.ErrOwed) {
		fmt.Println("a dispatcher has fallen behind:", err)
	}
	fmt.Println(len(report.Dropped), err)
	// Output: 0 <nil>
}

// What an operator's tool does with dead letters.
func Example_deadLetters() {
	ctx := context.Background()
	db, done := exampleDB()
	defer done()
	outbox := gormtx.New(db)
	_ = outbox.Migrate(ctx)
	down := true
	dispatcher := events.NewDispatcher(outbox, outbox, outbox, outbox, events.WithMaxAttempts(1))
	_ = dispatcher.Subscribe("t", "revoke-api-keys", func(context.Context, events.Event) error {
		if down {
			return errors.New("vault is sealed")
		}
		return nil
	})
	_ = outbox.Atomically(ctx, func(ctx context.Context) error {
		return events.NewPublisher(outbox).Publish(ctx,
			events.Event{ID: "e-1", Type: "t", AggregateType: "User", AggregateID: "u-1"},
			events.Event{ID: "e-2", Type: "t", AggregateType: "User", AggregateID: "u-2"})
	})
	_, _ = dispatcher.RunOnce(ctx, 100)
	down = false

	letters := events.NewDeadLetters(outbox, outbox) // no handlers needed
	page, err := letters.List(ctx, persistence.DeadLetterQuery{State: persistence.DeadLetterDead, Handler: "revoke-api-keys", WithoutPayload: true, Limit: 100})
	for _, l := range page {
		fmt.Println(l.Record.ID, l.Attempts, l.LastError)
	}

	err = letters.Requeue(ctx, page[0].Marker()) // or: dispatcher.Replay(ctx, page[0].Marker())
	fmt.Println(err)
	err = letters.Discard(ctx, page[1].Marker())
	fmt.Println(err)
	_, err = dispatcher.RunOnce(ctx, 100)
	fmt.Println(err)
	for _, l := range page {
		l, err = letters.Get(ctx, l.Marker())
		fmt.Println(l.Record.ID, l.State, err)
	}

	purged, err := letters.Purge(ctx, time.Now().AddDate(0, -3, 0))
	fmt.Println(purged, err)
	// Output:
	// e-1 1 vault is sealed
	// e-2 1 vault is sealed
	// <nil>
	// <nil>
	// <nil>
	// e-1 replayed <nil>
	// e-2 discarded <nil>
	// 0 <nil>
}

// Outside of Atomically nothing is written.
func ExampleTx_outsideATransaction() {
	err := gormtx.Tx(context.Background()).Create(&User{"u-1", "active"}).Error
	fmt.Println(err)
	// Output: gormtx: no transaction: call Tx inside Atomically, with the context that Atomically passes on
}
