package outboxtest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/persistence"
)

// suite is one run of one rule.
type suite struct {
	*testing.T
	Backend
	ctx  context.Context
	open Open
}

// errRollback is what the suite rolls back with.
var errRollback = errors.New("roll back")

var beginning persistence.Cursor

// needsConcurrency skips where two transactions cannot both be open and write.
func (s *suite) needsConcurrency() {
	s.Helper()
	if s.OneWriter || s.OneConnection {
		s.Skip("cannot occur: one transaction at a time")
	}
}

func needs[T any](s *suite, hook func(context.Context) T, name string) {
	s.Helper()
	if hook == nil {
		s.Skip("the backend has no " + name)
	}
}

// record returns a valid record.
func record(id string) persistence.Record {
	return persistence.Record{
		ID: id, AccountID: "account", AggregateType: "User", AggregateID: "user-1",
		EventType: "test.Happened", Payload: []byte("payload of " + id),
	}
}

// numbered returns n valid records of one aggregate.
func numbered(prefix string, n int) []persistence.Record {
	records := make([]persistence.Record, n)
	for i := range records {
		records[i] = record(fmt.Sprintf("%s-%04d", prefix, i))
	}
	return records
}

// commit appends records in a transaction and commits it.
func (s *suite) commit(records ...persistence.Record) {
	s.Helper()
	require.NoError(s, s.Transactor.Atomically(s.ctx, func(ctx context.Context) error {
		return s.Outbox.Append(ctx, records...)
	}))
}

// read waits until a cursor sees all that is committed, and returns what it
// sees from after on. No producer may be open.
func (s *suite) read(after persistence.Cursor) []persistence.Record {
	s.Helper()
	committed, err := s.Outbox.ReadWindow(s.ctx, persistence.WindowRead{After: after, Frontier: after, Limit: 100_000})
	require.NoError(s, err)
	for {
		seen := s.readNow(after)
		if len(seen) >= len(committed.Records) {
			return seen
		}
		select { // the safe mark may follow the clock in steps
		case <-time.After(5 * time.Millisecond):
		case <-s.ctx.Done():
			s.Fatalf("a cursor sees %d of %d committed records, and no producer is open", len(seen), len(committed.Records))
		}
	}
}

// readNow returns what a cursor sees at once.
func (s *suite) readNow(after persistence.Cursor) []persistence.Record {
	s.Helper()
	var all []persistence.Record
	for {
		page, err := s.Outbox.ReadAfter(s.ctx, after, 100)
		require.NoError(s, err)
		if len(page) == 0 {
			return all
		}
		all = append(all, page...)
		after = page[len(page)-1].Cursor()
	}
}

// settled waits until a cursor sees all that is committed.
func (s *suite) settled() {
	s.Helper()
	s.read(beginning)
}

func ids(records []persistence.Record) []string {
	out := []string{}
	for _, r := range records {
		out = append(out, r.ID)
	}
	return out
}

// wantIDs requires that exactly these records are committed, in this order.
func (s *suite) wantIDs(want ...string) {
	s.Helper()
	require.Equal(s, append([]string{}, want...), ids(s.read(beginning)))
}

func (s *suite) wantState(key, want string) {
	s.Helper()
	got, err := s.Get(s.ctx, key)
	require.NoError(s, err)
	require.Equal(s, want, got)
}

// openTransaction is a transaction that another goroutine keeps open.
type openTransaction struct {
	s    *suite
	end  chan error
	done chan error
}

// begin runs fn in a transaction and keeps that open until finish is called.
func (s *suite) begin(fn func(ctx context.Context) error) *openTransaction {
	s.Helper()
	o := &openTransaction{s: s, end: make(chan error, 1), done: make(chan error, 1)}
	ready := make(chan struct{})
	go func() {
		o.done <- s.Transactor.Atomically(s.ctx, func(ctx context.Context) error {
			if err := fn(ctx); err != nil {
				return err
			}
			close(ready)
			select {
			case err := <-o.end:
				return err
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	}()
	select {
	case <-ready:
	case err := <-o.done:
		require.NoError(s, err)
		s.Fatal("the transaction ended by itself")
	}
	return o
}

// finish commits the transaction, or rolls it back with the error.
func (o *openTransaction) finish(rollback error) {
	o.s.Helper()
	o.end <- rollback
	require.ErrorIs(o.s, <-o.done, rollback)
}

func (s *suite) dispatcher(opts ...events.Option) *events.Dispatcher {
	return s.dispatcherWith(s.Idempotency, opts...)
}

func (s *suite) dispatcherWith(idempotency persistence.IdempotencyStore, opts ...events.Option) *events.Dispatcher {
	return events.NewDispatcher(s.Outbox, s.Cursors, s.Transactor, idempotency, opts...)
}

func (s *suite) load(dispatcher string) persistence.State {
	s.Helper()
	require.NoError(s, s.Cursors.Create(s.ctx, dispatcher, beginning)) // if it does not exist
	state, err := s.Cursors.Load(s.ctx, dispatcher)
	require.NoError(s, err)
	return state
}

// stamp returns a time in the resolution that databases keep.
func stamp(offset time.Duration) time.Time {
	return time.Date(2026, 3, 29, 1, 59, 59, 123_456_000, time.UTC).Add(offset)
}
