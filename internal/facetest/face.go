package facetest

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/outboxtest"
	"github.com/onward-go/outbox/persistence"
)

// Face is a face over a database.
type Face struct {
	// Outbox is what the face's constructor returns.
	Outbox Outbox
	// Exec runs a statement in the transaction of ctx, as users of the face
	// do. Placeholders are question marks.
	Exec func(ctx context.Context, query string, args ...any) error
	// Ask reads one value there.
	Ask func(ctx context.Context, dest any, query string) error
	// Dialect names the kind of database.
	Dialect string
	// Pool is under the face.
	Pool *sql.DB
	// Naming is what Outbox was configured with.
	Naming Naming
}

// Outbox is what every face's outbox is at once.
type Outbox interface {
	persistence.Transactor
	persistence.OutboxStore
	persistence.OutboxCursorStore
	persistence.CursorAdmin
	persistence.IdempotencyStore
	persistence.OutboxRetention
	persistence.DedupStore
	persistence.OutboxInspector
	persistence.StatusReader
	persistence.Validator
	Migrate(ctx context.Context) error
}

// Prepare makes what [Face.Backend] needs in an empty database: the outbox and
// the application's tables.
func (f Face) Prepare(t testing.TB) {
	t.Helper()
	require.NoError(t, f.Outbox.Migrate(t.Context()))
	for _, statement := range dialects[f.Dialect].tables {
		_, err := f.Pool.ExecContext(t.Context(), statement)
		require.NoError(t, err)
	}
}

// Backend returns the outbox in a database that was prepared.
func (f Face) Backend(t testing.TB) outboxtest.Backend {
	t.Helper()
	d := dialects[f.Dialect]
	backend := outboxtest.Backend{
		Transactor:  f.Outbox,
		Outbox:      f.Outbox,
		Cursors:     f.Outbox,
		Admin:       f.Outbox,
		Idempotency: f.Outbox,
		DeadLetters: f.Outbox,
		Retention:   f.Outbox,
		Dedup:       f.Outbox,
		Inspector:   f.Outbox,
		Status:      f.Outbox,
		Validator:   f.Outbox,
		Put: func(ctx context.Context, key, value string) error {
			return f.Exec(ctx, d.upsert, key, value)
		},
		Get: func(ctx context.Context, key string) (string, error) {
			var value string
			err := f.Pool.QueryRowContext(ctx, Numbered(f.Dialect, "SELECT v FROM outboxtest_state WHERE k = ?"), key).Scan(&value)
			if errors.Is(err, sql.ErrNoRows) {
				err = nil
			}
			return value, err
		},
		EndTransaction: func(ctx context.Context) error { return d.endTransaction(ctx, f) },
		FailCommit:     func(ctx context.Context) error { return d.failCommit(ctx, f) },
		Insert:         func(ctx context.Context, r persistence.Record) error { return d.insert(ctx, f, r) },
		Delete: func(ctx context.Context, event persistence.Cursor) error {
			_, err := f.Pool.ExecContext(ctx, Numbered(f.Dialect, "DELETE FROM "+d.table(f.Naming, "outbox")+" WHERE id = ?"), event.ID)
			return err
		},
		OneWriter:       d.oneWriter,
		SavepointsBlock: d.savepointsBlock != nil && d.savepointsBlock(f.Pool),
		Snapshots:       d.snapshots != nil && d.snapshots(f.Pool),
		OneConnection:   f.oneConnection(),
	}
	if d.partition != nil {
		backend.Partition = func(ctx context.Context, ends ...time.Time) error {
			return Partition(ctx, f.Pool, f.Dialect, f.Naming, ends...)
		}
	}
	return backend
}

func (f Face) oneConnection() bool { return f.Pool.Stats().MaxOpenConnections == 1 }
