package model

import (
	"context"
	"errors"
	"time"

	"github.com/onward-go/outbox/persistence"
)

// The stores of a replica stop before each call, until the sequence lets it
// through.

type gatedOutbox struct {
	persistence.OutboxStore
	r *replica
}

func (o gatedOutbox) ReadWindow(ctx context.Context, read persistence.WindowRead) (persistence.WindowPage, error) {
	return through(o.r.gate, "read", func() (persistence.WindowPage, error) { return o.OutboxStore.ReadWindow(ctx, read) })
}

func (o gatedOutbox) SafeMark(ctx context.Context) (persistence.SafeMark, error) {
	return through(o.r.gate, "mark", func() (persistence.SafeMark, error) {
		mark, err := o.OutboxStore.SafeMark(ctx)
		if err == nil {
			o.r.m.mark.answered(mark.Time)
		}
		return mark, err
	})
}

func (o gatedOutbox) CountRows(ctx context.Context, from, to time.Time) ([]persistence.Bucket, error) {
	return through(o.r.gate, "count", func() ([]persistence.Bucket, error) { return o.OutboxStore.CountRows(ctx, from, to) })
}

// gatedTransactor stops before the commit, and where the database has one writer
// before the transaction instead, since the others would wait there.
type gatedTransactor struct {
	persistence.Transactor
	r *replica
}

// unit is a transaction of a replica. Its name is that of its marker.
type unit struct{ name string }

type unitKey struct{}

func (x gatedTransactor) Atomically(ctx context.Context, fn func(context.Context) error) error {
	if x.r.m.OneWriter {
		_, err := through(x.r.gate, "begin", nothing(func() error { return x.Transactor.Atomically(ctx, fn) }))
		return err
	}
	u, fate := &unit{}, made
	err := x.Transactor.Atomically(context.WithValue(ctx, unitKey{}, u), func(ctx context.Context) error {
		if err := fn(ctx); err != nil {
			return err
		}
		fate = x.r.enter("commit " + u.name)
		switch fate {
		case orphaned:
			return errCrashed
		case unmade:
			return errFault
		}
		return nil
	})
	if err == nil && fate == unheard {
		return errFault
	}
	return err
}

// IsTransient implements [persistence.FaultJudge].
func (x gatedTransactor) IsTransient(err error) bool {
	judge, ok := x.Transactor.(persistence.FaultJudge)
	return errors.Is(err, errFault) || errors.Is(err, errTransient) || ok && judge.IsTransient(err)
}

// inTransaction makes a call within a transaction. It does not stop where the
// database has one writer.
func inTransaction[T any](ctx context.Context, r *replica, point string, do func() (T, error)) (T, error) {
	if r.m.OneWriter {
		return do()
	}
	if u, ok := ctx.Value(unitKey{}).(*unit); ok {
		u.name = point
	}
	return through(r.gate, point, do)
}

type gatedIdempotency struct {
	persistence.IdempotencyStore
	r *replica
}

func (i gatedIdempotency) Record(ctx context.Context, markers ...persistence.Marker) ([]bool, error) {
	return recording(ctx, i.r, markers[0], func(ctx context.Context) ([]bool, error) {
		return i.IdempotencyStore.Record(ctx, markers...)
	})
}

func (i gatedIdempotency) RecordNew(ctx context.Context, marker persistence.Marker) error {
	_, err := recording(ctx, i.r, marker, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, i.IdempotencyStore.RecordNew(ctx, marker)
	})
	return err
}

// recording makes a call that records markers, of which one is given.
func recording[T any](ctx context.Context, r *replica, marker persistence.Marker, do func(context.Context) (T, error)) (T, error) {
	return inTransaction(ctx, r, "marker "+name(marker.Event.ID, marker.Handler), func() (T, error) {
		// A replica that crashes does not wait for a racing twin any longer.
		ctx, cancel := r.alive(ctx)
		defer cancel()
		return do(ctx)
	})
}

func (i gatedIdempotency) Applied(ctx context.Context, markers ...persistence.Marker) ([]bool, error) {
	return through(i.r.gate, "applied", func() ([]bool, error) { return i.IdempotencyStore.Applied(ctx, markers...) })
}

// name names a delivery.
func name(event, handler string) string { return event + "/" + handler }
