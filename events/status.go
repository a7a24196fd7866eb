package events

import (
	"context"
	"errors"
	"fmt"

	"github.com/onward-go/outbox/persistence"
)

// Status is where a dispatcher stands: what the database knows of it, and what
// this process does about it. Its JSON has durations in seconds and no payload;
// the errors of handlers are in it.
type Status struct {
	persistence.OutboxStatus
	persistence.DispatcherStatus

	// Self is this dispatcher's name as the owner of a lease.
	Self string `json:"self"`
	// New says that the dispatcher has not run yet, in any process, or has been
	// forgotten. There is no cursor, so that Lag and After are not known, and 0.
	New bool `json:"new,omitempty"`
	// Polling says that Poll runs here.
	Polling bool `json:"polling"`
	// Working says that this dispatcher holds the lease.
	Working bool `json:"working"`
	// Lag is how long ago the oldest event was stamped that is committed and not
	// settled, in seconds. Who works knows that of each event. Who stands by knows
	// the cursor only, and takes everything after it, and before the mark, for not
	// settled; and it counts the events behind the cursor that wait for a handler
	// which it has, and the holder of the lease lacks.
	Lag persistence.Seconds `json:"lag_seconds"`
	// LateEvents is that of [Stats].
	LateEvents int64 `json:"late_events"`
	// Window is what the dispatcher has read and the cursor has not passed; nil
	// unless it works.
	Window *WindowStatus `json:"window,omitempty"`
}

// WindowStatus is what a dispatcher has before it.
type WindowStatus struct {
	// Events is the number of events between the cursor and the last one that was
	// read, and Bytes that of payloads which are not delivered.
	Events int   `json:"events"`
	Bytes  int64 `json:"bytes"`
	// MaxEvents and MaxBytes are the bounds of [WithWindow].
	MaxEvents int `json:"max_events"`
	MaxBytes  int `json:"max_bytes"`
	// Full says that nothing more is read until the cursor moves, or payloads are
	// delivered.
	Full bool `json:"full"`
	// Settled is the number of those events that are settled, and wait for the
	// cursor.
	Settled int `json:"settled"`
	// Running is the number of lanes that run a handler, Queued that of events
	// which wait for their turn, and Parked that of aggregates which wait for the
	// end of a back-off.
	Running int `json:"running"`
	Queued  int `json:"queued"`
	Parked  int `json:"parked"`
	// HeldBy is what keeps the cursor from moving on.
	HeldBy Hold `json:"held_by,omitempty"`
	// Oldest is the first event that is not settled, or nil.
	Oldest *WaitingEvent `json:"oldest,omitempty"`
}

// Hold is what keeps a cursor from moving on; empty is nothing.
type Hold string

const (
	// HeldByEvent is an event that is not settled: [WindowStatus.Oldest].
	HeldByEvent Hold = "event"
	// HeldByProducer is an open transaction: the first of
	// [persistence.OutboxStatus.Producers]. All events before it are settled.
	HeldByProducer Hold = "producer"
)

// WaitingEvent is an event that is not settled.
type WaitingEvent struct {
	Event         persistence.Cursor  `json:"event"`
	EventType     string              `json:"event_type"`
	AccountID     string              `json:"account_id"`
	AggregateType string              `json:"aggregate_type"`
	AggregateID   string              `json:"aggregate_id"`
	Age           persistence.Seconds `json:"age_seconds"`
}

// Status returns where the dispatcher stands. It may be called at any time, also
// where another replica works. It asks the database a handful of questions, whose
// cost does not depend on how much the outbox holds.
//
// What cannot be read, for want of a privilege or because of a lock, is missing, and named
// in [persistence.OutboxStatus.Unread]; the rest is told. Before the dispatcher's first
// pass the status is that of the outbox, and New.
//
// The error is [errors.ErrUnsupported] if the cursor store is no
// [persistence.StatusReader].
func (d *Dispatcher) Status(ctx context.Context) (Status, error) {
	status, err := d.readStatus(ctx)
	if err != nil {
		return Status{}, fmt.Errorf("dispatcher %q: status: %w", d.name, err)
	}
	return status, nil
}

func (d *Dispatcher) readStatus(ctx context.Context) (Status, error) {
	if err := d.check(); err != nil {
		return Status{}, err
	}
	reader, ok := d.cursors.(persistence.StatusReader)
	if !ok {
		return Status{}, fmt.Errorf("%w: the cursor store is no persistence.StatusReader", errors.ErrUnsupported)
	}
	read, err := reader.ReadStatus(ctx, d.name)
	isNew := errors.Is(err, persistence.ErrNotFound)
	if err != nil && !isNew {
		return Status{}, err
	}
	status := Status{
		OutboxStatus: read.OutboxStatus, DispatcherStatus: unknown(d.name),
		Self: d.owner, New: isNew, Polling: d.polling.Load() > 0, LateEvents: d.lateEvents.Load(),
	}
	if len(read.Dispatchers) == 1 {
		status.DispatcherStatus = read.Dispatchers[0]
	}
	if t := d.current.Load(); t != nil && t.ctx.Err() == nil {
		status.Working = true
		err = t.describe(ctx, &status)
	} else {
		err = d.stand(ctx, &status)
	}
	if err != nil && ctx.Err() != nil {
		return Status{}, err
	}
	if err != nil {
		status.Lag = 0
		status.Unread = append(status.Unread, persistence.UnreadPart{Part: persistence.StatusLag, Of: d.name, Error: err.Error()})
	}
	return status, nil
}

// unknown is the status of a dispatcher of which nothing is known.
func unknown(name string) persistence.DispatcherStatus {
	return persistence.DispatcherStatus{
		Dispatcher: name, Failing: []persistence.Attempt{}, Behind: []persistence.SubscriptionState{},
		DeadLetters: map[persistence.DeadLetterState]persistence.Count{},
	}
}

// stand tells the lag of a dispatcher that does not work, by what could be read.
func (d *Dispatcher) stand(ctx context.Context, status *Status) error {
	for _, part := range []persistence.StatusPart{
		persistence.StatusMark, persistence.StatusDispatchers, persistence.StatusAfter, persistence.StatusBehind,
	} {
		if status.IsUnread(part, d.name) {
			return fmt.Errorf("what it is made of could not be read: %s", part)
		}
	}
	if status.Oldest != nil && (status.Mark.IsZero() || status.Oldest.CreatedTime.Before(status.Mark)) {
		status.Lag = status.OldestAge
	}
	return d.countStarving(ctx, status)
}

// describe adds what the term knows.
func (t *term) describe(ctx context.Context, status *Status) error {
	now := t.lanes.load()
	w, frontier := t.window.describe(status.OutboxStatus)
	w.Bytes, w.MaxEvents, w.MaxBytes = now.bytes, t.d.windowEvents, t.d.windowBytes
	w.Full = w.Events >= w.MaxEvents || w.Bytes >= int64(w.MaxBytes)
	w.Running, w.Queued, w.Parked = now.running, now.queued, t.lanes.parked()
	status.Window = w
	if w.Oldest != nil {
		status.Lag = w.Oldest.Age
		return nil
	}
	// What it has not read yet.
	next, err := t.d.store.ReadWindow(ctx, persistence.WindowRead{After: frontier, Frontier: frontier, Limit: 1, WithoutPayload: true})
	if err == nil && len(next.Records) > 0 {
		status.Lag = next.Records[0].Cursor().Age(status.Now)
	}
	return err
}

// describe tells what is in the window, and its frontier.
func (w *window) describe(outbox persistence.OutboxStatus) (*WindowStatus, persistence.Cursor) {
	w.mu.Lock()
	defer w.mu.Unlock()
	status := &WindowStatus{Events: len(w.entries)}
	for i, e := range w.entries {
		switch {
		case e.settled.Load():
			status.Settled++
		case status.Oldest == nil:
			r := &e.record // of which the payload may change meanwhile
			status.Oldest = &WaitingEvent{
				Event: e.at, EventType: r.EventType, AccountID: r.AccountID,
				AggregateType: r.AggregateType, AggregateID: r.AggregateID, Age: e.at.Age(outbox.Now),
			}
			if i == 0 {
				status.HeldBy = HeldByEvent
			}
		}
	}
	if status.HeldBy == "" && len(w.entries) > 0 && len(outbox.Producers) > 0 && !w.entries[0].at.CreatedTime.Before(outbox.Mark) {
		status.HeldBy = HeldByProducer
	}
	return status, w.frontier
}

// parked returns how many lanes wait for the end of a back-off.
func (l *lanes) parked() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, ln := range l.byKey {
		if ln.at.idle() {
			n++
		}
	}
	return n
}
