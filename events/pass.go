package events

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/onward-go/outbox/persistence"
)

// saveTimeout bounds the save of what a pass has settled when its context has
// been cancelled.
const saveTimeout = 5 * time.Second

// runPass reads the next events after the cursor, delivers them in order and
// moves the cursor over the unbroken prefix that is settled.
func (d *Dispatcher) runPass(ctx context.Context, limit int) (settled int, err error) {
	state, err := d.load(ctx)
	if err != nil {
		return 0, err
	}
	records, err := d.store.ReadAfter(ctx, state.Cursor, limit)
	if err != nil || len(records) == 0 {
		return 0, err
	}
	applied, err := d.applied(ctx, records)
	if err != nil {
		return 0, err
	}
	d.rereading = true // until the pass is through
	var problems []error
	for _, r := range records {
		if ctx.Err() != nil {
			problems = append(problems, context.Cause(ctx))
			break
		}
		ok, err := d.deliver(ctx, state.Lease, r, applied)
		problems = append(problems, err)
		if !ok {
			break
		}
		settled++
	}
	if settled > 0 {
		saveCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), saveTimeout)
		defer cancel()
		progress := persistence.Progress{Cursor: records[settled-1].Cursor()}
		for _, a := range state.Attempts {
			if a.Event.Compare(progress.Cursor) <= 0 {
				progress.Settled = append(progress.Settled, persistence.Marker{Event: a.Event, Handler: a.Handler})
			}
		}
		if err := d.cursors.Save(saveCtx, state.Lease, progress); err != nil {
			return settled, errors.Join(append(problems, err)...)
		}
	}
	d.rereading = settled < len(records)
	return settled, errors.Join(problems...)
}

// load returns the dispatcher's state, and creates it at its start if it does
// not exist, or has been forgotten.
func (d *Dispatcher) load(ctx context.Context) (persistence.State, error) {
	state, err := d.cursors.Load(ctx, d.name)
	if !errors.Is(err, persistence.ErrNotFound) {
		return state, err
	}
	start, err := d.start(ctx)
	if err != nil {
		return state, fmt.Errorf("where to start: %w", err)
	}
	if err := d.cursors.Create(ctx, d.name, start); err != nil {
		return state, err
	}
	return d.cursors.Load(ctx, d.name)
}

// applied returns the markers that exist already, by one query for the whole
// batch. It asks only when what it reads may have been delivered before: after
// a start, a failure, or a cursor that could not be saved. A marker that it
// does not know of still stops the handler.
func (d *Dispatcher) applied(ctx context.Context, records []persistence.Record) (map[persistence.Marker]bool, error) {
	if !d.rereading {
		return nil, nil
	}
	var markers []persistence.Marker
	for _, r := range records {
		for _, s := range d.subscriptions(r.EventType) {
			markers = append(markers, s.marker(r))
		}
	}
	if len(markers) == 0 {
		return nil, nil
	}
	found, err := d.idempotency.Applied(ctx, markers...)
	if err != nil {
		return nil, err
	}
	applied := make(map[persistence.Marker]bool)
	for i, m := range markers {
		if found[i] {
			applied[m] = true
		}
	}
	return applied, nil
}
