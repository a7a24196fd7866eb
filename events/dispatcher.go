package events

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"github.com/onward-go/outbox/persistence"
)

// Handler reacts to an event. Its context carries the transaction in which it
// runs, the event's account ([AccountID]), and is cancelled with the
// dispatcher's. An error rolls the transaction back.
type Handler func(ctx context.Context, evt Event) error

// Dispatcher delivers committed events to handlers. It is safe for concurrent
// use; passes of one Dispatcher run one after the other.
//
// Several dispatchers of one name may run at once: each effect still happens
// exactly once, by the markers.
type Dispatcher struct {
	store       persistence.OutboxStore
	cursors     persistence.OutboxCursorStore
	tx          persistence.Transactor
	idempotency persistence.IdempotencyStore

	name        string
	maxAttempts int
	start       func(context.Context) (persistence.Cursor, error)
	log         *slog.Logger

	mu       sync.Mutex
	handlers map[string][]subscription // by event type
	invalid  []error

	pass      chan struct{} // held by the pass that runs
	rereading bool          // guarded by pass: what is read may have been applied
}

type subscription struct {
	name    string
	handler Handler
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
		store:       store,
		cursors:     cursors,
		tx:          tx,
		idempotency: idempotency,
		name:        DefaultName,
		maxAttempts: DefaultMaxAttempts,
		start:       func(context.Context) (persistence.Cursor, error) { return persistence.Cursor{}, nil },
		log:         slog.New(slog.DiscardHandler),
		handlers:    map[string][]subscription{},
		pass:        make(chan struct{}, 1),
		rereading:   true,
	}
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

// Subscribe registers a handler for a type of event. Subscribe before the first
// pass: an event that has been read is not read again for a handler that comes
// later.
//
// The name identifies the handler in markers, so it must stay the same over
// releases, and is unique per event type; 1 to 128 bytes. An error is
// [persistence.ErrInvalid]; RunOnce and Poll return it, too.
func (d *Dispatcher) Subscribe(eventType, handlerName string, handler Handler) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var problems []error
	refuse := func(format string, args ...any) {
		problems = append(problems, invalid(format, args...))
	}
	if problem := persistence.CheckText(eventType, persistence.MaxNameBytes); problem != "" {
		refuse("subscription of handler %q: event type %s", handlerName, problem)
	}
	if problem := persistence.CheckText(handlerName, persistence.MaxHandlerBytes); problem != "" {
		refuse("subscription to %q: handler name %s", eventType, problem)
	}
	if handler == nil {
		refuse("subscription to %q: handler %q is nil", eventType, handlerName)
	}
	handlers := d.handlers[eventType]
	if slices.ContainsFunc(handlers, func(s subscription) bool { return s.name == handlerName }) {
		refuse("subscription to %q: handler %q is subscribed already", eventType, handlerName)
	}
	if len(problems) > 0 {
		d.invalid = append(d.invalid, problems...)
		return errors.Join(problems...)
	}
	d.handlers[eventType] = append(slices.Clip(handlers), subscription{handlerName, handler})
	return nil
}

// subscriptions returns the handlers of an event type. The slice is never
// changed.
func (d *Dispatcher) subscriptions(eventType string) []subscription {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.handlers[eventType]
}

// RunOnce makes one pass: it delivers the next events, at most limit, and
// returns how many of them it has settled. It stops at the first event that a
// handler fails on, and at a cancelled ctx; the events before are settled.
//
// The error joins what handlers returned and what went wrong beside them:
//
//   - [persistence.ErrInvalid], before anything is read, for options,
//     subscriptions and limits.
//   - [persistence.ErrInTransaction] if ctx carries a transaction, or is that
//     of one of its own handlers: handlers have transactions of their own, and
//     none would see what that one wrote.
//   - [ErrDeadLettered] for an event that was settled as a dead letter.
//   - [persistence.ErrLeaseLost] if somebody has taken over, or moved the
//     cursor; the next pass reads it anew.
func (d *Dispatcher) RunOnce(ctx context.Context, limit int) (int, error) {
	if err := errors.Join(d.check(), persistence.CheckLimit(limit)); err != nil {
		return 0, fmt.Errorf("dispatcher %q: %w", d.name, err)
	}
	if persistence.InTransaction(ctx) {
		return 0, fmt.Errorf("dispatcher %q: %w: call RunOnce after the transaction", d.name, persistence.ErrInTransaction)
	}
	if ctx.Value(passing{d}) != nil {
		return 0, fmt.Errorf("dispatcher %q: %w: RunOnce is called from a handler of its own", d.name, persistence.ErrInTransaction)
	}
	select {
	case d.pass <- struct{}{}:
		defer func() { <-d.pass }()
	case <-ctx.Done():
		return 0, fmt.Errorf("dispatcher %q: %w", d.name, context.Cause(ctx))
	}
	settled, err := d.runPass(context.WithValue(ctx, passing{d}, true), limit)
	if err != nil {
		return settled, fmt.Errorf("dispatcher %q: %w", d.name, err)
	}
	return settled, nil
}

// passing marks the context of a pass, so that a handler, or a hook of its
// transaction, does not wait for the pass that waits for it.
type passing struct{ d *Dispatcher }

// check returns what is wrong with options and subscriptions.
func (d *Dispatcher) check() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return errors.Join(d.invalid...)
}
