package eventstest

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/onward-go/outbox/events"
)

// Field sets a field of an event that [Event] builds.
type Field func(*events.Event)

// Event returns a valid event of the type. Without fields it is of an aggregate
// "Test" with an id of its own, so that it waits for no other.
func Event(eventType string, fields ...Field) events.Event {
	evt := events.Event{Type: eventType, AggregateType: "Test", AggregateID: events.NewID()}
	for _, set := range fields {
		set(&evt)
	}
	return evt
}

// Events returns n events as [Event] does, with the ids "1" to "n", each of an
// aggregate of its own unless the fields say otherwise.
func Events(n int, eventType string, fields ...Field) []events.Event {
	evts := make([]events.Event, n)
	for i := range evts {
		evts[i] = Event(eventType, append([]Field{ID(fmt.Sprint(i + 1))}, fields...)...)
	}
	return evts
}

// ID sets the event's id, which [events.Publisher.Publish] makes otherwise.
func ID(id string) Field { return func(e *events.Event) { e.ID = id } }

// Aggregate sets the aggregate that emits the event.
func Aggregate(aggregateType, id string) Field {
	return func(e *events.Event) { e.AggregateType, e.AggregateID = aggregateType, id }
}

// Account sets the event's tenant.
func Account(id string) Field { return func(e *events.Event) { e.AccountID = id } }

// DedupKey sets the event's dedup key.
func DedupKey(key string) Field { return func(e *events.Event) { e.DedupKey = key } }

// Payload sets the event's payload.
func Payload(payload []byte) Field { return func(e *events.Event) { e.Payload = payload } }

// JSON sets the event's payload to the value in JSON. It panics if the value has
// none.
func JSON(value any) Field {
	payload, err := json.Marshal(value)
	if err != nil {
		panic(fmt.Sprintf("eventstest: payload: %v", err))
	}
	return Payload(payload)
}

// Delivered returns the event as a handler gets it: with an id, a stamp, and
// without its dedup key. It is for calling a handler directly.
func Delivered(evt events.Event) events.Event {
	if evt.ID == "" {
		evt.ID = events.NewID()
	}
	if evt.CreatedTime.IsZero() {
		evt.CreatedTime = time.Now().UTC().Truncate(time.Microsecond)
	}
	evt.DedupKey = ""
	return evt
}
