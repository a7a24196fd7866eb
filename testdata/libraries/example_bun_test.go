package libraries_test

import (
	"context"
	"fmt"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/sqlitedialect"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/sqltx"
)

type User struct {
	bun.BaseModel `bun:"table:users"`

	ID     string `bun:",pk"`
	Status string
}

type APIKey struct {
	bun.BaseModel `bun:"table:api_keys"`

	ID     string `bun:",pk"`
	UserID string
	Status string
}

// Queries of bun run in the outbox's transaction as soon as it is their Conn.
func Example_bun() {
	ctx := context.Background()
	db, done := exampleDB(ctx)
	defer done()
	const id = "u-1"

	outbox := sqltx.New(db, sqltx.SQLite)
	publisher := events.NewPublisher(outbox)
	dispatcher := events.NewDispatcher(outbox, outbox, outbox, outbox)
	orm := bun.NewDB(db, sqlitedialect.New())

	_ = dispatcher.Subscribe("iam.v1.UserSuspended", "revoke-api-keys", func(ctx context.Context, evt events.Event) error {
		_, err := orm.NewUpdate().Conn(sqltx.Tx(ctx)).Model((*APIKey)(nil)).
			Set("status = ?", "revoked").Where("user_id = ?", evt.AggregateID).Exec(ctx)
		return err
	})

	err := outbox.Atomically(ctx, func(ctx context.Context) error {
		_, err := orm.NewUpdate().Conn(sqltx.Tx(ctx)).Model((*User)(nil)).
			Set("status = ?", "suspended").Where("id = ?", id).Exec(ctx)
		if err != nil {
			return err
		}
		return publisher.Publish(ctx, events.Event{Type: "iam.v1.UserSuspended", AggregateType: "User", AggregateID: id})
	})

	delivered, err2 := dispatcher.RunOnce(ctx, 100)
	revoked, err3 := orm.NewSelect().Model((*APIKey)(nil)).Where("status = ?", "revoked").Count(ctx)
	fmt.Println(delivered, revoked, err, err2, err3)
	// Output: 1 2 <nil> <nil> <nil>
}
