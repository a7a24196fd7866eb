package events

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/onward-go/outbox/internal/usercode"
	"github.com/onward-go/outbox/persistence"
)

// Handler reacts to an event. Its context carries the transaction in which it
// runs, the event's account ([AccountID]), and is cancelled with the
// dispatcher's. An error rolls the transaction back.
type Handler func(ctx context.Context, evt Event) error

// Dispatcher delivers committed events to handlers. It is safe for concurrent
// use.
//
// Any number of dispatchers of one name, in as many processes, may run at once:
// one of them holds the lease and works, the others stand by.
type Dispatcher struct {
	store       persistence.OutboxStore
	cursors     persistence.OutboxCursorStore
	tx          persistence.Transactor
	idempotency persistence.IdempotencyStore

	name           string
	owner          string
	lease          time.Duration
	concurrency    int // 0: what the transactor is good for
	batchSize      int
	maxAttempts    int
	backoff        backoff
	handlerTimeout time.Duration
	grace          time.Duration
	windowEvents   int
	windowBytes    int
	forgetAfter    time.Duration
	start          func(context.Context) (persistence.Cursor, error)
	startNow       bool
	log            *slog.Logger
	logCalls       *usercode.Calls
	observers      []observer

	wake       signal
	current    atomic.Pointer[term] // the tenure of the lease that goes on, for those who look
	polling    atomic.Int32
	lateEvents atomic.Int64
	clockAhead atomic.Int64 // by how much the database's clock is, in ns

	droppedCalls atomic.Int64

	mu         sync.Mutex
	handlers   map[string][]subscription // by event type
	middleware []Middleware
	invalid    []error

	pass       chan struct{} // held by the pass, or the Poll, that runs; guards what follows
	registered registration
	faults     map[persistence.Marker]int // of deliveries of the last pass that are not settled
	absent     string                     // handlers that it lacked, when it last said so
	audited    time.Time
	pruned     time.Time
	requeued   requeued
	warnedOf   int // the limit of a pool that is small
}

type subscription struct {
	eventType string
	name      string
	handler   Handler
	batch     *batchHandler // what handler applies to one; or nil
}

// marker returns the marker of the handler's delivery of a record.
func (s subscription) marker(r persistence.Record) persistence.Marker {
	return persistence.Marker{Event: r.Cursor(), Handler: s.name}
}

// NewDispatcher returns a dispatcher that reads store, keeps its position in
// cursors, and runs handlers in transactions of tx with markers in
// idempotency. All four have to be of one database. What is wrong with the
// arguments is returned by RunOnce and Poll, as [persistence.ErrInvalid].
func NewDispatcher(store persistence.OutboxStore, cursors persistence.OutboxCursorStore, tx persistence.Transactor, idempotency persistence.IdempotencyStore, opts ...Option) *Dispatcher {
	d := &Dispatcher{
		store:          store,
		cursors:        cursors,
		tx:             tx,
		idempotency:    idempotency,
		name:           DefaultName,
		owner:          newOwner(),
		lease:          DefaultLease,
		batchSize:      DefaultBatchSize,
		maxAttempts:    DefaultMaxAttempts,
		backoff:        backoff{DefaultFirstBackoff, DefaultMaxBackoff},
		handlerTimeout: DefaultHandlerTimeout,
		grace:          DefaultShutdownGrace,
		windowEvents:   DefaultWindowEvents,
		windowBytes:    DefaultWindowBytes,
		forgetAfter:    DefaultSubscriptionExpiry,
		start:          func(context.Context) (persistence.Cursor, error) { return persistence.Cursor{}, nil },
		log:            slog.New(slog.DiscardHandler),
		wake:           newSignal(),
		handlers:       map[string][]subscription{},
		pass:           make(chan struct{}, 1),
	}
	d.logCalls = usercode.NewCalls("the logger", &d.droppedCalls, nil)
	for _, part := range []struct {
		name    string
		missing bool
	}{
		{"outbox store", store == nil}, {"cursor store", cursors == nil}, {"transactor", tx == nil}, {"idempotency store", idempotency == nil},
	} {
		if part.missing {
			d.refuse("the %s is nil", part.name)
		}
	}
	for i, opt := range opts {
		if opt == nil {
			d.refuse("option %d is nil", i)
			continue
		}
		opt(d)
	}
	return d
}

// newOwner names this dispatcher in the lease, for people to read.
func newOwner() string {
	host, err := os.Hostname()
	if err != nil || len(host) > 150 {
		host = "unknown"
	}
	return fmt.Sprintf("%s/%d/%s", host, os.Getpid(), NewID())
}

// Subscribe registers a handler for a type of event. Subscribe before the first
// pass: while Poll runs, it is refused.
//
// Handlers that are there before the dispatcher's first pass start where the
// dispatcher starts: by default at the first event of the outbox. One that comes
// later gets the events that are committed after the first pass, or stand by, that
// registers it, also while another replica, which does not know the handler yet, is
// at work and moves the cursor on. What is committed by then is not for it, though
// the dispatcher may not have delivered it: the first
// [persistence.MaxSettledAtStart] events after the safe mark are settled for it, and
// the log tells if there are more, which it gets. Where the store has no safe mark
// for some seconds, since a producer has been open for longer than this process, the
// registration fails, and is tried again.
//
// The name identifies the handler in markers, so it must stay the same over
// releases. It is global to the outbox: the same event type and name under
// another dispatcher's name is refused by RunOnce and Poll. It is 1 to 128
// bytes. An error is [persistence.ErrInvalid]; RunOnce and Poll return it, too.
func (d *Dispatcher) Subscribe(eventType, handlerName string, handler Handler) error {
	return d.subscribe(subscription{eventType: eventType, name: handlerName, handler: handler}, handler == nil)
}

// SubscribeBatch registers a handler that takes several events at a time, as many
// as wait for it, at most [WithBatchSize]: they share a transaction, in which
// their markers are written first, by one statement. Only events that have not
// been applied are handed over. All else is as with [Dispatcher.Subscribe].
//
// A batch that fails is tried again in halves, down to the single event, which
// alone counts as failed, is tried again after a back-off, and becomes a dead
// letter in the end. So the handler must not have effects outside of its
// transaction. After a process has ended without a word, what it may have been
// handling is delivered one by one.
func (d *Dispatcher) SubscribeBatch(eventType, handlerName string, handler BatchHandler) error {
	b := &batchHandler{handler: handler}
	return d.subscribe(subscription{eventType: eventType, name: handlerName, handler: b.one, batch: b}, handler == nil)
}

func (d *Dispatcher) subscribe(s subscription, isNil bool) error {
	eventType, handlerName := s.eventType, s.name
	missing := -1
	if !isNil {
		s, missing = d.wrap(s)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	problem := persistence.CheckSubscription(persistence.Subscription{EventType: eventType, Handler: handlerName})
	problems := []error{problem}
	refuse := func(format string, args ...any) {
		problems = append(problems, invalid("subscription to %q: handler %q "+format, append([]any{eventType, handlerName}, args...)...))
	}
	if isNil {
		refuse("is nil")
	}
	if missing >= 0 {
		refuse("is wrapped by middleware %d, which returns no handler", missing)
	}
	if slices.ContainsFunc(d.handlers[eventType], func(s subscription) bool { return s.name == handlerName }) {
		refuse("is subscribed already")
	}
	if err := errors.Join(problems...); err != nil {
		d.invalid = append(d.invalid, err)
		return err
	}
	if d.polling.Load() > 0 {
		return invalid("subscription to %q: handler %q comes too late, Poll is running", eventType, handlerName)
	}
	d.handlers[eventType] = append(slices.Clip(d.handlers[eventType]), s)
	return nil
}

// Stats are counters of a dispatcher since it was made.
type Stats struct {
	// LateEvents is the number of events that an audit has found behind the
	// cursor. It stays 0 as long as the database's clock is not set back and
	// nobody stamps rows by himself. They are delivered, but out of order.
	LateEvents int64
	// DroppedCalls is the number of calls of observers, of the logger and of Poll's
	// onError that were not made, since an earlier one did not return; see
	// [Observer]. It stays 0 as long as they do.
	DroppedCalls int64
}

// Stats returns the counters.
func (d *Dispatcher) Stats() Stats {
	return Stats{LateEvents: d.lateEvents.Load(), DroppedCalls: d.droppedCalls.Load()}
}

// check returns what is wrong with options and subscriptions.
func (d *Dispatcher) check() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return errors.Join(d.invalid...)
}

// enter waits until no pass of this dispatcher runs.
func (d *Dispatcher) enter(ctx context.Context) error {
	select {
	case d.pass <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (d *Dispatcher) leave() { <-d.pass }
