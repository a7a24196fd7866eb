package sqltx_test

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/sqltx"
)

// What sqlc makes of two queries, in a package of its own. It knows nothing of
// the outbox.

type querying interface {
	ExecContext(context.Context, string, ...any) (sql.Result, error)
	PrepareContext(context.Context, string) (*sql.Stmt, error)
	QueryContext(context.Context, string, ...any) (*sql.Rows, error)
	QueryRowContext(context.Context, string, ...any) *sql.Row
}

func newQueries(db querying) *queries { return &queries{db} }

type queries struct{ db querying }

const suspendUser = `UPDATE users SET status = 'suspended' WHERE id = ?`

func (q *queries) SuspendUser(ctx context.Context, id string) error {
	_, err := q.db.ExecContext(ctx, suspendUser, id)
	return err
}

const userStatus = `SELECT status FROM users WHERE id = ?`

func (q *queries) UserStatus(ctx context.Context, id string) (string, error) {
	var status string
	err := q.db.QueryRowContext(ctx, userStatus, id).Scan(&status)
	return status, err
}

// Code that sqlc generates takes the transaction like any other. Its DBTX is
// called querying here.
func Example_sqlc() {
	ctx := context.Background()
	db, done := exampleDB()
	defer done()
	outbox := sqltx.New(db, sqltx.SQLite)
	_ = outbox.Migrate(ctx)
	publisher := events.NewPublisher(outbox)

	err := outbox.Atomically(ctx, func(ctx context.Context) error {
		if err := newQueries(sqltx.Tx(ctx)).SuspendUser(ctx, "u-1"); err != nil {
			return err
		}
		return publisher.Publish(ctx, events.Event{Type: "iam.v1.UserSuspended", AggregateType: "User", AggregateID: "u-1"})
	})

	// Inside of a transaction and outside.
	status, err2 := newQueries(sqltx.DB(ctx, db)).UserStatus(ctx, "u-1")
	fmt.Println(err, err2, status)
	// Output: <nil> <nil> suspended
}
