package eventstest

import (
	"context"
	"testing"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/memstore"
	"github.com/onward-go/outbox/persistence"
)

// Outbox is an outbox in memory with a publisher and a dispatcher. Its methods
// fail the test if something goes wrong, and are called on the test's goroutine.
type Outbox struct {
	// Store is for repositories on tables of its own ([memstore.NewTable]).
	Store      *memstore.Store
	Publisher  *events.Publisher
	Dispatcher *events.Dispatcher

	t testing.TB
}

// New returns an empty outbox. The options are the dispatcher's.
func New(t testing.TB, opts ...events.Option) *Outbox {
	store := memstore.New()
	return &Outbox{
		Store:      store,
		Publisher:  events.NewPublisher(store),
		Dispatcher: events.NewDispatcher(store, store, store, store, opts...),
		t:          t,
	}
}

// Subscribe registers a handler with the dispatcher, under a name of its own.
func (o *Outbox) Subscribe(eventType string, handler events.Handler) {
	o.t.Helper()
	if err := o.Dispatcher.Subscribe(eventType, "handler "+events.NewID(), handler); err != nil {
		o.t.Fatalf("subscribe to %s: %v", eventType, err)
	}
}

// Record subscribes a new [Recorder] to the event type, beside the handlers that
// it has.
func (o *Outbox) Record(eventType string) *Recorder {
	o.t.Helper()
	r := &Recorder{}
	o.Subscribe(eventType, r.Handle)
	return r
}

// Publish publishes events in a transaction of its own, and commits it.
func (o *Outbox) Publish(evts ...events.Event) {
	o.t.Helper()
	err := o.Store.Atomically(o.t.Context(), func(ctx context.Context) error {
		return o.Publisher.Publish(ctx, evts...)
	})
	if err != nil {
		o.t.Fatal(err)
	}
}

// Published returns what has been published and committed, in order.
func (o *Outbox) Published() []events.Event {
	o.t.Helper()
	evts, err := Published(o.t.Context(), o.Store)
	if err != nil {
		o.t.Fatal(err)
	}
	return evts
}

// Drain delivers until nothing is left, with what handlers publish meanwhile. A
// handler that fails, fails the test; where that is expected, use [Drain].
func (o *Outbox) Drain() {
	o.t.Helper()
	if err := Drain(o.t.Context(), o.Dispatcher); err != nil {
		o.t.Fatal(err)
	}
}

// DeadLetters returns the dead letters, in the order of their events.
func (o *Outbox) DeadLetters() []persistence.DeadLetter {
	o.t.Helper()
	letters, err := o.Store.ListDeadLetters(o.t.Context(), persistence.DeadLetterQuery{Limit: all})
	if err != nil {
		o.t.Fatalf("list dead letters: %v", err)
	}
	return letters
}
