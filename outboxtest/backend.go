package outboxtest

import (
	"context"
	"testing"
	"time"

	"github.com/onward-go/outbox/persistence"
)

// Backend is an empty outbox in a database of its own, as the suite uses it.
type Backend struct {
	Transactor  persistence.Transactor
	Outbox      persistence.OutboxStore
	Cursors     persistence.OutboxCursorStore
	Admin       persistence.CursorAdmin
	Idempotency persistence.IdempotencyStore
	DeadLetters persistence.DeadLetterStore
	// Retention may be nil; its rules are skipped then.
	Retention persistence.OutboxRetention
	// Dedup may be nil; its rules are skipped then. Outbox implements it, too,
	// for publishers.
	Dedup persistence.DedupStore
	// Inspector may be nil; its rules are skipped then.
	Inspector persistence.OutboxInspector
	// Status may be nil; its rules are skipped then.
	Status persistence.StatusReader
	// Validator may be nil; its rules are skipped then.
	Validator persistence.Validator

	// Put writes a value of the application's own in the transaction that ctx
	// carries, and locks it until the transaction ends.
	Put func(ctx context.Context, key, value string) error
	// Get reads the committed value, or "".
	Get func(ctx context.Context, key string) (string, error)

	// EndTransaction makes the server end the transaction that ctx carries by
	// itself, as it does with the victim of a deadlock. The suite swallows the
	// error that the statement may return. Nil where there is no such thing.
	EndTransaction func(ctx context.Context) error
	// FailCommit makes the commit of the transaction that ctx carries fail.
	// Nil where there is no such thing.
	FailCommit func(ctx context.Context) error
	// Insert writes a row as something else than the library would, with the
	// stamp that it has, or with none if CreatedTime is zero. It commits. Nil
	// where nobody else can write.
	Insert func(ctx context.Context, record persistence.Record) error

	// Delete deletes a row of the outbox by hand, which nobody should. It commits.
	// Nil where nobody can.
	Delete func(ctx context.Context, event persistence.Cursor) error

	// Partition cuts the first partition of both tables at each of the rising
	// times, as they would be cut had the outbox existed then. Nil where there
	// are no partitions.
	Partition func(ctx context.Context, ends ...time.Time) error

	// OneWriter says that a second transaction that writes waits until the
	// first has ended.
	OneWriter bool
	// SavepointsBlock says that a producer which rolled a savepoint back lets
	// the others wait until it ends, as InnoDB's gap locks do under REPEATABLE
	// READ.
	SavepointsBlock bool
	// Snapshots says that a transaction which meets what has been committed
	// after its snapshot fails as a whole, to be tried again, as MariaDB's do with
	// innodb_snapshot_isolation. Transactor is a persistence.FaultJudge then.
	Snapshots bool
	// OneConnection says that the pool has one connection.
	OneConnection bool
}

// Open returns a new Backend. Several are open at once.
type Open func(t testing.TB) Backend
