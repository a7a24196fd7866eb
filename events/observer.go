package events

import (
	"context"
	"log/slog"
	"time"

	"github.com/onward-go/outbox/internal/usercode"
	"github.com/onward-go/outbox/persistence"
)

// Observer is told what a dispatcher does, for metrics and alerts. A function that is
// nil is not called.
//
// The functions of an observer are called one after the other, a moment after what
// they are told of, on a goroutine of their own. [Dispatcher.Poll],
// [Dispatcher.RunOnce] and [Dispatcher.Replay] wait for those calls before they
// return, for five seconds at most.
//
// One that panics, or ends its goroutine, is logged, and changes nothing. While a
// thousand calls wait, whoever asks for another one waits, too, unless the call that
// runs has taken longer than a second: then the new one is dropped, logged, and
// counted ([Stats.DroppedCalls]).
type Observer struct {
	// Delivered is called when a handler's transaction has committed.
	Delivered func(DeliveryInfo)
	// Failed is called when an attempt was spent. Err is why.
	Failed func(DeliveryInfo)
	// Postponed is called when a delivery is tried again without spending an attempt.
	Postponed func(DeliveryInfo)
	// DeadLettered is called when an event has become a dead letter.
	DeadLettered func(DeliveryInfo)
	// Replayed is called when a dead letter has been applied, and ReplayFailed when
	// that has failed.
	Replayed     func(DeliveryInfo)
	ReplayFailed func(DeliveryInfo)
	// Read is called after each read of the outbox.
	Read func(ReadInfo)
	// Saved is called when the cursor has been saved.
	Saved func(SaveInfo)
	// Lease is called when the lease has been acquired, lost or released.
	Lease func(LeaseInfo)
	// LateEvents is called when an audit has found events behind the cursor.
	LateEvents func(LateInfo)
}

// DeliveryInfo is an event and a handler.
type DeliveryInfo struct {
	Dispatcher    string
	Handler       string
	EventID       string
	EventType     string
	AccountID     string
	AggregateType string
	AggregateID   string
	// Attempts is the number of failures so far.
	Attempts int
	// Duration is how long the handler's transaction took. The events of a batch
	// share one.
	Duration time.Duration
	// Batch is how many events were delivered in the transaction, and Index the
	// number of this one among them, from 0.
	Batch, Index int
	// Lag is how long ago the event was stamped, by the database's clock.
	Lag time.Duration
	// Err is what went wrong, or nil.
	Err error
}

// ReadInfo is a read of the outbox.
type ReadInfo struct {
	Dispatcher string
	// Events is the number of new events, and Late that of others, which were
	// committed after later ones had been read.
	Events, Late int
	// Window is how many events lie between the cursor and the last one.
	Window   int
	Duration time.Duration
}

// SaveInfo is a save of the cursor.
type SaveInfo struct {
	Dispatcher string
	Cursor     persistence.Cursor
	// Passed is how many events the cursor has passed since this dispatcher took the
	// lease.
	Passed int64
}

// LeaseChange is what has become of a lease.
type LeaseChange string

const (
	LeaseAcquired LeaseChange = "acquired"
	LeaseLost     LeaseChange = "lost"
	LeaseReleased LeaseChange = "released"
)

// LeaseInfo is a change of the lease.
type LeaseInfo struct {
	Dispatcher string
	Owner      string
	Token      int64
	Change     LeaseChange
	// Unclean says that the former owner has not released it.
	Unclean bool
	// Err is why it was lost.
	Err error
}

// LateInfo is what an audit has found.
type LateInfo struct {
	Dispatcher string
	// Bucket is the beginning of the ten seconds in which the events were stamped.
	Bucket time.Time
	Events int64
}

// WithObserver adds an observer. Several are told independently of each other.
func WithObserver(o Observer) Option {
	return func(d *Dispatcher) {
		d.observers = append(d.observers, observer{o, d.calls("an observer")})
	}
}

// observer is one, and the calls of its functions.
type observer struct {
	Observer
	calls *usercode.Calls
}

// calls returns calls of what, of which the log says how they failed.
func (d *Dispatcher) calls(what string) *usercode.Calls {
	return usercode.NewCalls(what, &d.droppedCalls, func(err error) {
		d.log.LogAttrs(context.Background(), slog.LevelError, "outbox: callback failed", slog.String("dispatcher", d.name), slog.Any("error", err))
	})
}

// drain waits for calls that were asked for.
func (d *Dispatcher) drain() {
	deadline := time.Now().Add(closeTimeout)
	for _, o := range d.observers {
		o.calls.Drain(time.Until(deadline))
	}
	d.logCalls.Drain(time.Until(deadline))
}

// observed reports whether there is anybody to tell.
func (d *Dispatcher) observed() bool { return len(d.observers) > 0 }

// tell calls a function of each observer.
func tell[I any](d *Dispatcher, which func(*Observer) func(I), info I) {
	for i := range d.observers {
		if fn := which(&d.observers[i].Observer); fn != nil {
			ask(d.observers[i].calls, fn, info)
		}
	}
}

// ask asks for a call. It is a function of its own, so that info is moved to the heap
// only where there is somebody to tell.
//
//go:noinline
func ask[I any](calls *usercode.Calls, fn func(I), info I) {
	calls.Add(func() { fn(info) })
}

func ofDelivered(o *Observer) func(DeliveryInfo)    { return o.Delivered }
func ofFailed(o *Observer) func(DeliveryInfo)       { return o.Failed }
func ofPostponed(o *Observer) func(DeliveryInfo)    { return o.Postponed }
func ofDeadLettered(o *Observer) func(DeliveryInfo) { return o.DeadLettered }
func ofReplayed(o *Observer) func(DeliveryInfo)     { return o.Replayed }
func ofReplayFailed(o *Observer) func(DeliveryInfo) { return o.ReplayFailed }
func ofRead(o *Observer) func(ReadInfo)             { return o.Read }
func ofSaved(o *Observer) func(SaveInfo)            { return o.Saved }
func ofLease(o *Observer) func(LeaseInfo)           { return o.Lease }
func ofLateEvents(o *Observer) func(LateInfo)       { return o.LateEvents }

// now returns the time if somebody is to be told how long something takes.
func (d *Dispatcher) now() (now time.Time) {
	if d.observed() {
		now = time.Now()
	}
	return now
}

// since returns how long ago that was, or 0.
func since(began time.Time) (took time.Duration) {
	if !began.IsZero() {
		took = time.Since(began)
	}
	return took
}

// see notes by how much the database's clock is ahead of this one.
func (d *Dispatcher) see(clock time.Time) { d.clockAhead.Store(int64(time.Until(clock))) }

// tellOf tells what has become of a delivery.
func (d *Dispatcher) tellOf(which func(*Observer) func(DeliveryInfo), r *persistence.Record, dl *delivery, err error) {
	if d.observed() {
		tell(d, which, d.info(r, dl.name, dl.failures, dl.took, err))
	}
}

// tellOfLetter tells what has become of a replay.
func (d *Dispatcher) tellOfLetter(which func(*Observer) func(DeliveryInfo), l *persistence.DeadLetter, began time.Time, err error) {
	if d.observed() {
		tell(d, which, d.info(&l.Record, l.Handler, l.Attempts, since(began), err))
	}
}

func (d *Dispatcher) info(r *persistence.Record, handler string, attempts int, took time.Duration, err error) DeliveryInfo {
	return DeliveryInfo{
		Dispatcher: d.name, Handler: handler, EventID: r.ID, EventType: r.EventType, AccountID: r.AccountID,
		AggregateType: r.AggregateType, AggregateID: r.AggregateID, Attempts: attempts, Duration: took, Batch: 1,
		Lag: max(0, time.Since(r.CreatedTime)+time.Duration(d.clockAhead.Load())), Err: err,
	}
}

// tellOfBatch tells of the events of a batch that were delivered.
func (t *term) tellOfBatch(b *batchHandler, parts []part, fresh []bool, began time.Time) {
	if !t.d.observed() {
		return
	}
	took, size, index := since(began), 0, 0
	for _, isNew := range fresh {
		if isNew {
			size++
		}
	}
	for i, p := range parts {
		if !fresh[i] {
			continue
		}
		dl := p.entry.deliveryTo(b)
		info := t.d.info(&p.entry.record, dl.name, dl.failures, took, nil)
		info.Batch, info.Index = size, index
		tell(t.d, ofDelivered, info)
		index++
	}
}

// tellOfLease tells what has become of the term's lease.
func (t *term) tellOfLease(change LeaseChange, err error) {
	tell(t.d, ofLease, LeaseInfo{
		Dispatcher: t.d.name, Owner: t.d.owner, Token: t.lease.Token, Change: change, Unclean: t.lease.Unclean, Err: err,
	})
}
