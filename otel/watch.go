package outboxotel

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/persistence"
)

// Source is what is watched: an [events.Dispatcher].
type Source interface {
	Status(ctx context.Context) (events.Status, error)
}

// statusTimeout bounds how long a collection waits for the database.
const statusTimeout = 5 * time.Second

// gauges are what a status is told by.
type gauges struct {
	lag, markAge, ahead                             metric.Float64ObservableGauge
	after, failing, letters, behind, producers      metric.Int64ObservableGauge
	held, working, windowEvents, windowFull, parked metric.Int64ObservableGauge
}

func (g *gauges) make(meter metric.Meter) error {
	var problems []error
	seconds := func(name, what string) metric.Float64ObservableGauge {
		i, err := meter.Float64ObservableGauge(name, metric.WithUnit("s"), metric.WithDescription(what))
		problems = append(problems, err)
		return i
	}
	number := func(name, unit, what string) metric.Int64ObservableGauge {
		i, err := meter.Int64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(what))
		problems = append(problems, err)
		return i
	}
	g.lag = seconds("outbox.lag", "How old the oldest event is that is not settled.")
	g.markAge = seconds("outbox.mark.age", "For how long an open producer has held the cursor back.")
	g.ahead = seconds("outbox.partitions.ahead", "How long partitions last from now.")
	g.after = number("outbox.after_cursor", "{event}", "Events after the cursor, counted up to a bound.")
	g.failing = number("outbox.failing", "{delivery}", "Deliveries that have failed and are not settled, counted up to a bound.")
	g.letters = number("outbox.dead_letters", "{letter}", "Dead letters by state, counted up to a bound.")
	g.behind = number("outbox.subscriptions.behind", "{subscription}", "Handlers that have been left behind.")
	g.producers = number("outbox.producers", "{transaction}", "Open transactions that hold the cursor back.")
	g.held = number("outbox.lease.held", "1", "1 if some process holds the lease.")
	g.working = number("outbox.working", "1", "1 if this process does.")
	g.windowEvents = number("outbox.window.events", "{event}", "Events that were read and that the cursor has not passed.")
	g.windowFull = number("outbox.window.full", "1", "1 if nothing more is read until the cursor moves.")
	g.parked = number("outbox.window.parked", "{aggregate}", "Aggregates that wait for the end of a back-off.")
	return errors.Join(problems...)
}

func (g *gauges) all() []metric.Observable {
	return []metric.Observable{
		g.lag, g.markAge, g.ahead, g.after, g.failing, g.letters, g.behind, g.producers, g.held, g.working, g.windowEvents, g.windowFull, g.parked,
	}
}

// Watch asks for a dispatcher's status at each collection, and has it told by gauges.
// Where that fails, there are none, and the error goes to OpenTelemetry's handler of
// errors. So does each part of the status that could not be read, whose gauges alone are
// missing. Unregister ends it.
//
// Watch a dispatcher in one process, or in each: what the database knows is the same
// in all of them.
func (m *Metrics) Watch(source Source) (metric.Registration, error) {
	if source == nil {
		return nil, fmt.Errorf("outboxotel: %w: the dispatcher is nil", persistence.ErrInvalid)
	}
	return m.meter.RegisterCallback(func(ctx context.Context, o metric.Observer) error {
		ctx, cancel := context.WithTimeout(ctx, statusTimeout)
		defer cancel()
		status, err := source.Status(ctx)
		if err == nil {
			m.gauges.observe(o, status)
			for _, u := range status.Unread { // an error returned would keep all metrics from being exported
				otel.Handle(fmt.Errorf("outboxotel: dispatcher %q: the part %s of its status could not be read: %s", status.Dispatcher, u.Part, u.Error))
			}
		}
		return err
	}, m.gauges.all()...)
}

// observe tells a status. There is no gauge of what is not known: it would say 0.
func (g *gauges) observe(o metric.Observer, s events.Status) {
	of := metric.WithAttributes(keyDispatcher.String(s.Dispatcher))
	with := func(more attribute.KeyValue) metric.MeasurementOption {
		return metric.WithAttributes(keyDispatcher.String(s.Dispatcher), more)
	}
	read := func(parts ...persistence.StatusPart) bool {
		return !slices.ContainsFunc(parts, func(p persistence.StatusPart) bool { return s.IsUnread(p, s.Dispatcher) })
	}
	if read(persistence.StatusLag) && !s.New {
		o.ObserveFloat64(g.lag, s.Lag.Duration().Seconds(), of)
	}
	if read(persistence.StatusMark, persistence.StatusProducers) {
		o.ObserveFloat64(g.markAge, s.MarkAge.Duration().Seconds(), of)
	}
	if read(persistence.StatusProducers) {
		o.ObserveInt64(g.producers, int64(len(s.Producers)), of)
	}
	for _, p := range s.Partitions {
		o.ObserveFloat64(g.ahead, p.Ahead.Duration().Seconds(), with(keyTable.String(p.Table)))
	}
	if read(persistence.StatusDispatchers) {
		g.observeDispatcher(o, s, of, with, read)
	}
	o.ObserveInt64(g.working, one(s.Working), of)
	window := events.WindowStatus{}
	if s.Window != nil {
		window = *s.Window
	}
	o.ObserveInt64(g.windowEvents, int64(window.Events), of)
	o.ObserveInt64(g.windowFull, one(window.Full), of)
	o.ObserveInt64(g.parked, int64(window.Parked), of)
}

// observeDispatcher tells what the database knows of the dispatcher.
func (g *gauges) observeDispatcher(o metric.Observer, s events.Status, of metric.ObserveOption,
	with func(attribute.KeyValue) metric.MeasurementOption, read func(...persistence.StatusPart) bool) {
	if read(persistence.StatusAfter) && !s.New {
		o.ObserveInt64(g.after, int64(s.After.N), of)
	}
	if read(persistence.StatusFailing) {
		o.ObserveInt64(g.failing, int64(s.FailingCount.N), of)
	}
	if read(persistence.StatusDeadLetters) && !s.New {
		// Those without any, too, so that an alert sees the first one come.
		for _, state := range []persistence.DeadLetterState{
			persistence.DeadLetterDead, persistence.DeadLetterRequeued, persistence.DeadLetterReplayed, persistence.DeadLetterDiscarded,
		} {
			o.ObserveInt64(g.letters, int64(s.DeadLetters[state].N), with(keyState.String(string(state))))
		}
	}
	if read(persistence.StatusBehind) {
		o.ObserveInt64(g.behind, int64(len(s.Behind)), of)
	}
	o.ObserveInt64(g.held, one(s.Lease.Held), of)
}

func one(is bool) int64 {
	if is {
		return 1
	}
	return 0
}
