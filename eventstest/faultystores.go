package eventstest

import (
	"context"
	"errors"
	"time"

	"github.com/onward-go/outbox/persistence"
)

// Transactor wraps a transactor. A fault of "Atomically" comes before the
// transaction begins ([Faults.Fail]) or after it has committed ([Faults.Lose]).
func (f *Faults) Transactor(next persistence.Transactor) persistence.Transactor {
	return transactor{f, next}
}

// Outbox wraps an outbox store. It is a [persistence.DedupStore] if the store is
// one.
func (f *Faults) Outbox(next persistence.OutboxStore) persistence.OutboxStore {
	if dedup, ok := next.(persistence.DedupStore); ok {
		return keyedOutbox{outbox{f, next}, keys{f, dedup}}
	}
	return outbox{f, next}
}

// Idempotency wraps a store of markers.
func (f *Faults) Idempotency(next persistence.IdempotencyStore) persistence.IdempotencyStore {
	return markers{f, next}
}

// Retention wraps retention. It is a [persistence.DedupStore] if that is one, so
// that [persistence.Retain] frees dedup keys.
func (f *Faults) Retention(next persistence.OutboxRetention) persistence.OutboxRetention {
	if dedup, ok := next.(persistence.DedupStore); ok {
		return keyedRetention{retention{f, next}, keys{f, dedup}}
	}
	return retention{f, next}
}

type transactor struct {
	faults *Faults
	next   persistence.Transactor
}

func (t transactor) Atomically(ctx context.Context, fn func(ctx context.Context) error) error {
	return run(ctx, t.faults, "Atomically", func() error { return t.next.Atomically(ctx, fn) })
}

// IsTransient asks the transactor, if it can tell.
func (t transactor) IsTransient(err error) bool {
	judge, ok := t.next.(persistence.FaultJudge)
	return errors.Is(err, persistence.ErrTransient) || ok && judge.IsTransient(err)
}

// MaxTransactions asks the transactor, if it can tell.
func (t transactor) MaxTransactions() int {
	if limited, ok := t.next.(persistence.TransactionLimit); ok {
		return limited.MaxTransactions()
	}
	return 0
}

type outbox struct {
	faults *Faults
	next   persistence.OutboxStore
}

type keys struct {
	faults *Faults
	next   persistence.DedupStore
}

type keyedOutbox struct {
	outbox
	keys
}

type markers struct {
	faults *Faults
	next   persistence.IdempotencyStore
}

type retention struct {
	faults *Faults
	next   persistence.OutboxRetention
}

type keyedRetention struct {
	retention
	keys
}

func (s outbox) Append(ctx context.Context, records ...persistence.Record) error {
	return run(ctx, s.faults, "Append", func() error { return s.next.Append(ctx, records...) })
}

func (s outbox) ReadAfter(ctx context.Context, after persistence.Cursor, limit int) ([]persistence.Record, error) {
	return call(ctx, s.faults, "ReadAfter", func() ([]persistence.Record, error) { return s.next.ReadAfter(ctx, after, limit) })
}

func (s outbox) ReadWindow(ctx context.Context, read persistence.WindowRead) (persistence.WindowPage, error) {
	return call(ctx, s.faults, "ReadWindow", func() (persistence.WindowPage, error) { return s.next.ReadWindow(ctx, read) })
}

func (s outbox) SafeMark(ctx context.Context) (persistence.SafeMark, error) {
	return call(ctx, s.faults, "SafeMark", func() (persistence.SafeMark, error) { return s.next.SafeMark(ctx) })
}

func (s outbox) CountRows(ctx context.Context, from, to time.Time) ([]persistence.Bucket, error) {
	return call(ctx, s.faults, "CountRows", func() ([]persistence.Bucket, error) { return s.next.CountRows(ctx, from, to) })
}

func (s keys) ReserveKeys(ctx context.Context, reservations ...persistence.Reservation) error {
	return run(ctx, s.faults, "ReserveKeys", func() error { return s.next.ReserveKeys(ctx, reservations...) })
}

func (s keys) PurgeKeys(ctx context.Context, before time.Time, limit int) (int, error) {
	return call(ctx, s.faults, "PurgeKeys", func() (int, error) { return s.next.PurgeKeys(ctx, before, limit) })
}

func (s markers) Record(ctx context.Context, all ...persistence.Marker) ([]bool, error) {
	return call(ctx, s.faults, "Record", func() ([]bool, error) { return s.next.Record(ctx, all...) })
}

func (s markers) RecordNew(ctx context.Context, marker persistence.Marker) error {
	return run(ctx, s.faults, "RecordNew", func() error { return s.next.RecordNew(ctx, marker) })
}

func (s markers) Applied(ctx context.Context, all ...persistence.Marker) ([]bool, error) {
	return call(ctx, s.faults, "Applied", func() ([]bool, error) { return s.next.Applied(ctx, all...) })
}

func (s retention) EnsurePartitions(ctx context.Context, months int, options persistence.RetentionOptions) (persistence.RetentionReport, error) {
	return call(ctx, s.faults, "EnsurePartitions", func() (persistence.RetentionReport, error) { return s.next.EnsurePartitions(ctx, months, options) })
}

func (s retention) DropPartitionsBefore(ctx context.Context, before time.Time, options persistence.RetentionOptions) (persistence.RetentionReport, error) {
	return call(ctx, s.faults, "DropPartitionsBefore", func() (persistence.RetentionReport, error) { return s.next.DropPartitionsBefore(ctx, before, options) })
}
