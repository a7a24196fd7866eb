package outboxotel

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/persistence"
)

const scope = "github.com/onward-go/outbox/otel"

// Attributes of the metrics. None has a value for each event or aggregate.
const (
	keyDispatcher = attribute.Key("outbox.dispatcher")
	keyHandler    = attribute.Key("outbox.handler")
	keyEventType  = attribute.Key("outbox.event_type")
	keyOutcome    = attribute.Key("outbox.outcome")
	keyLate       = attribute.Key("outbox.late")
	keyChange     = attribute.Key("outbox.change")
	keyState      = attribute.Key("outbox.state")
	keyTable      = attribute.Key("outbox.table")
)

// Buckets of the histograms, in seconds.
var (
	durations = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}
	lags      = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200, 86400}
)

// Metrics are the instruments. They may be those of several dispatchers, which the
// attribute outbox.dispatcher tells apart. It is safe for concurrent use.
type Metrics struct {
	meter metric.Meter

	deliveries   metric.Int64Counter
	handling     metric.Float64Histogram
	lag          metric.Float64Histogram
	readEvents   metric.Int64Counter
	readDuration metric.Float64Histogram
	saves        metric.Int64Counter
	leases       metric.Int64Counter
	late         metric.Int64Counter

	gauges gauges
	sets   sync.Map // of attributes, by labels: they are made once
}

// New makes the instruments of a provider, of which [Metrics.Observer] and
// [Metrics.Watch] make use. It returns [persistence.ErrInvalid] for a provider that
// is nil, and the provider's errors.
func New(provider metric.MeterProvider) (*Metrics, error) {
	if provider == nil {
		return nil, fmt.Errorf("outboxotel: %w: the meter provider is nil", persistence.ErrInvalid)
	}
	m := &Metrics{meter: provider.Meter(scope)}
	var problems []error
	counter := func(name, unit, what string) metric.Int64Counter {
		c, err := m.meter.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(what))
		problems = append(problems, err)
		return c
	}
	histogram := func(name, what string, bounds []float64) metric.Float64Histogram {
		h, err := m.meter.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(what), metric.WithExplicitBucketBoundaries(bounds...))
		problems = append(problems, err)
		return h
	}
	m.deliveries = counter("outbox.deliveries", "{delivery}", "Events by handler and what has become of them.")
	m.handling = histogram("outbox.handler.duration", "How long transactions of handlers take.", durations)
	m.lag = histogram("outbox.delivery.lag", "From the stamp of an event to the commit of its handler.", lags)
	m.readEvents = counter("outbox.read.events", "{event}", "Events that were read.")
	m.readDuration = histogram("outbox.read.duration", "How long reads of the outbox take.", durations)
	m.saves = counter("outbox.cursor.saves", "{save}", "Saves of the cursor.")
	m.leases = counter("outbox.lease.changes", "{change}", "Leases acquired, lost and released.")
	m.late = counter("outbox.late_events", "{event}", "Events that an audit has found behind the cursor.")
	problems = append(problems, m.gauges.make(m.meter))
	if err := errors.Join(problems...); err != nil {
		return nil, fmt.Errorf("outboxotel: %w", err)
	}
	return m, nil
}

// labels are what a set of attributes is made of.
type labels struct {
	dispatcher, handler, eventType string
	key                            attribute.Key // of value, if any
	value                          string
}

// with returns the labels as an option, which is made once.
func (m *Metrics) with(l labels) metric.MeasurementOption {
	if found, ok := m.sets.Load(l); ok {
		return found.(metric.MeasurementOption)
	}
	all := []attribute.KeyValue{keyDispatcher.String(l.dispatcher)}
	if l.handler != "" {
		all = append(all, keyHandler.String(l.handler), keyEventType.String(l.eventType))
	}
	if l.key != "" {
		all = append(all, l.key.String(l.value))
	}
	option := metric.WithAttributeSet(attribute.NewSet(all...))
	m.sets.Store(l, option)
	return option
}

// Observer returns what to give to [events.WithObserver].
func (m *Metrics) Observer() events.Observer {
	return events.Observer{
		Delivered: func(i events.DeliveryInfo) {
			m.count(i, "delivered")
			m.took(i, "delivered")
			m.lag.Record(context.Background(), i.Lag.Seconds(), m.with(labels{dispatcher: i.Dispatcher, handler: i.Handler, eventType: i.EventType}))
		},
		Failed: func(i events.DeliveryInfo) {
			m.count(i, "failed")
			m.took(i, "failed")
		},
		Postponed:    func(i events.DeliveryInfo) { m.count(i, "postponed") },
		DeadLettered: func(i events.DeliveryInfo) { m.count(i, "dead_lettered") },
		Replayed:     func(i events.DeliveryInfo) { m.count(i, "replayed") },
		ReplayFailed: func(i events.DeliveryInfo) { m.count(i, "replay_failed") },
		Read:         m.read,
		Saved: func(i events.SaveInfo) {
			m.saves.Add(context.Background(), 1, m.with(labels{dispatcher: i.Dispatcher}))
		},
		Lease: func(i events.LeaseInfo) {
			m.leases.Add(context.Background(), 1, m.with(labels{dispatcher: i.Dispatcher, key: keyChange, value: string(i.Change)}))
		},
		LateEvents: func(i events.LateInfo) {
			m.late.Add(context.Background(), i.Events, m.with(labels{dispatcher: i.Dispatcher}))
		},
	}
}

func outcome(i events.DeliveryInfo, what string) labels {
	return labels{dispatcher: i.Dispatcher, handler: i.Handler, eventType: i.EventType, key: keyOutcome, value: what}
}

func (m *Metrics) count(i events.DeliveryInfo, what string) {
	m.deliveries.Add(context.Background(), 1, m.with(outcome(i, what)))
}

// took records how long a transaction took, once for all events of a batch.
func (m *Metrics) took(i events.DeliveryInfo, what string) {
	if i.Index == 0 {
		m.handling.Record(context.Background(), i.Duration.Seconds(), m.with(outcome(i, what)))
	}
}

func (m *Metrics) read(i events.ReadInfo) {
	ctx := context.Background()
	m.readDuration.Record(ctx, i.Duration.Seconds(), m.with(labels{dispatcher: i.Dispatcher}))
	m.readEvents.Add(ctx, int64(i.Events), m.with(labels{dispatcher: i.Dispatcher, key: keyLate, value: "false"}))
	m.readEvents.Add(ctx, int64(i.Late), m.with(labels{dispatcher: i.Dispatcher, key: keyLate, value: "true"}))
}
