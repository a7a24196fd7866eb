package model

import (
	"context"
	"time"

	"github.com/onward-go/outbox/persistence"
)

// The stores of a replica stop before each call, until the sequence lets it
// through.

type gatedOutbox struct {
	persistence.OutboxStore
	r *replica
}

func (o gatedOutbox) ReadWindow(ctx context.Context, read persistence.WindowRead) ([]persistence.Record, error) {
	if err := o.r.enter("read"); err != nil {
		return nil, err
	}
	return o.OutboxStore.ReadWindow(ctx, read)
}

func (o gatedOutbox) SafeMark(ctx context.Context) (persistence.SafeMark, error) {
	if err := o.r.enter("mark"); err != nil {
		return persistence.SafeMark{}, err
	}
	mark, err := o.OutboxStore.SafeMark(ctx)
	if err == nil {
		o.r.m.marked(mark.Time)
	}
	return mark, err
}

func (o gatedOutbox) CountRows(ctx context.Context, from, to time.Time) ([]persistence.Bucket, error) {
	if err := o.r.enter("count"); err != nil {
		return nil, err
	}
	return o.OutboxStore.CountRows(ctx, from, to)
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
		if err := x.r.enter("begin"); err != nil {
			return err
		}
		return x.Transactor.Atomically(ctx, fn)
	}
	u := &unit{}
	return x.Transactor.Atomically(context.WithValue(ctx, unitKey{}, u), func(ctx context.Context) error {
		if err := fn(ctx); err != nil {
			return err
		}
		return x.r.enter("commit " + u.name)
	})
}

// IsTransient implements [persistence.FaultJudge].
func (x gatedTransactor) IsTransient(err error) bool {
	judge, ok := x.Transactor.(persistence.FaultJudge)
	return ok && judge.IsTransient(err)
}

// inTransaction stops a call within a transaction. It does not where the
// database has one writer.
func (r *replica) inTransaction(ctx context.Context, point string) error {
	if r.m.OneWriter {
		return nil
	}
	if u, ok := ctx.Value(unitKey{}).(*unit); ok {
		u.name = point
	}
	return r.enter(point)
}

type gatedIdempotency struct {
	persistence.IdempotencyStore
	r *replica
}

func (i gatedIdempotency) Record(ctx context.Context, markers ...persistence.Marker) ([]bool, error) {
	if err := i.r.inTransaction(ctx, "marker "+markers[0].Event.ID+"/"+markers[0].Handler); err != nil {
		return nil, err
	}
	// A replica that has crashed does not wait for a racing twin any longer.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-i.r.dead:
			cancel()
		case <-ctx.Done():
		}
	}()
	return i.IdempotencyStore.Record(ctx, markers...)
}

func (i gatedIdempotency) Applied(ctx context.Context, markers ...persistence.Marker) ([]bool, error) {
	if err := i.r.enter("applied"); err != nil {
		return nil, err
	}
	return i.IdempotencyStore.Applied(ctx, markers...)
}
