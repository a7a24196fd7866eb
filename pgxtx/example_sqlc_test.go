package pgxtx_test

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/pgxtx"
)

// What sqlc makes of two queries for pgx/v5, in a package of its own. It knows
// nothing of the outbox.

type querying interface {
	Exec(context.Context, string, ...any) (pgconn.CommandTag, error)
	Query(context.Context, string, ...any) (pgx.Rows, error)
	QueryRow(context.Context, string, ...any) pgx.Row
}

func newQueries(db querying) *queries { return &queries{db} }

type queries struct{ db querying }

const suspendUser = `UPDATE users SET status = 'suspended' WHERE id = $1`

func (q *queries) SuspendUser(ctx context.Context, id string) error {
	_, err := q.db.Exec(ctx, suspendUser, id)
	return err
}

const userStatus = `SELECT status FROM users WHERE id = $1`

func (q *queries) UserStatus(ctx context.Context, id string) (string, error) {
	var status string
	err := q.db.QueryRow(ctx, userStatus, id).Scan(&status)
	return status, err
}

// Code that sqlc generates takes the transaction like any other. Its DBTX is
// called querying here.
func Example_sqlc() {
	ctx := context.Background()
	pool := examplePool(ctx)
	defer pool.Close()
	outbox := pgxtx.New(pool)
	publisher := events.NewPublisher(outbox)

	err := outbox.Atomically(ctx, func(ctx context.Context) error {
		if err := newQueries(pgxtx.Tx(ctx)).SuspendUser(ctx, "u-1"); err != nil {
			return err
		}
		return publisher.Publish(ctx, events.Event{Type: "iam.v1.UserSuspended", AggregateType: "User", AggregateID: "u-1"})
	})

	// Inside of a transaction and outside.
	status, err2 := newQueries(pgxtx.DB(ctx, pool)).UserStatus(ctx, "u-1")
	fmt.Println(err, err2, status)
}
