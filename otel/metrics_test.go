package outboxotel_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric/noop"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/memstore"
	outboxotel "github.com/onward-go/outbox/otel"
	"github.com/onward-go/outbox/persistence"
)

// watched is an outbox in memory, and what its metrics say.
type watched struct {
	t      *testing.T
	store  *memstore.Store
	reader *sdk.ManualReader
	*events.Dispatcher
	*outboxotel.Metrics
}

func watch(t *testing.T, opts ...events.Option) *watched {
	t.Helper()
	reader := sdk.NewManualReader()
	provider := sdk.NewMeterProvider(sdk.WithReader(reader))
	t.Cleanup(func() { require.NoError(t, provider.Shutdown(context.Background())) })
	metrics, err := outboxotel.New(provider)
	require.NoError(t, err)
	store := memstore.New()
	d := events.NewDispatcher(store, store, store, store, append(opts, events.WithObserver(metrics.Observer()))...)
	return &watched{t, store, reader, d, metrics}
}

func (w *watched) publish(aggregate string, ids ...string) {
	w.t.Helper()
	require.NoError(w.t, w.store.Atomically(w.t.Context(), func(ctx context.Context) error {
		for _, id := range ids {
			evt := events.Event{ID: id, Type: "t", AggregateType: "a", AggregateID: aggregate, Payload: []byte("secret")}
			if err := events.NewPublisher(w.store).Publish(ctx, evt); err != nil {
				return err
			}
		}
		return nil
	}))
}

// collect returns all values, by name and attributes; of a histogram the number.
func (w *watched) collect() map[string]float64 {
	w.t.Helper()
	var all metricdata.ResourceMetrics
	require.NoError(w.t, w.reader.Collect(w.t.Context(), &all))
	values := map[string]float64{}
	key := func(m metricdata.Metrics, set attribute.Set) string {
		name := m.Name
		for _, kv := range set.ToSlice() {
			name += fmt.Sprintf(" %s=%s", strings.TrimPrefix(string(kv.Key), "outbox."), kv.Value.String())
		}
		return name
	}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					values[key(m, p.Attributes)] = float64(p.Value)
				}
			case metricdata.Gauge[int64]:
				for _, p := range data.DataPoints {
					values[key(m, p.Attributes)] = float64(p.Value)
				}
			case metricdata.Gauge[float64]:
				for _, p := range data.DataPoints {
					values[key(m, p.Attributes)] = p.Value
				}
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					values[key(m, p.Attributes)] = float64(p.Count)
				}
			default:
				w.t.Fatalf("%s is a %T", m.Name, data)
			}
		}
	}
	return values
}

func (w *watched) runOnce() error {
	_, err := w.RunOnce(w.t.Context(), 100)
	return err
}

func TestDeliveriesAreCounted(t *testing.T) {
	w := watch(t, events.WithMaxAttempts(2))
	fails := true
	require.NoError(t, w.Subscribe("t", "h", func(_ context.Context, evt events.Event) error {
		if fails && evt.ID == "poison" {
			return errors.New("broken")
		}
		return nil
	}))
	w.publish("1", "a", "b")
	w.publish("2", "poison")
	require.Error(t, w.runOnce())
	require.ErrorIs(t, w.runOnce(), events.ErrDeadLettered)
	letters, err := w.store.ListDeadLetters(t.Context(), persistence.DeadLetterQuery{Limit: 1})
	require.NoError(t, err)
	require.Error(t, w.Replay(t.Context(), letters[0].Marker()))
	fails = false
	require.NoError(t, w.Replay(t.Context(), letters[0].Marker()))

	got := w.collect()
	const of = " dispatcher=default event_type=t handler=h"
	for name, want := range map[string]float64{
		"outbox.deliveries" + of + " outcome=delivered":           2,
		"outbox.deliveries" + of + " outcome=failed":              2,
		"outbox.deliveries" + of + " outcome=dead_lettered":       1,
		"outbox.deliveries" + of + " outcome=replayed":            1,
		"outbox.deliveries" + of + " outcome=replay_failed":       1,
		"outbox.handler.duration" + of + " outcome=delivered":     2,
		"outbox.handler.duration" + of + " outcome=failed":        2,
		"outbox.delivery.lag" + of:                                2,
		"outbox.lease.changes change=acquired dispatcher=default": 2,
		"outbox.lease.changes change=released dispatcher=default": 2,
		"outbox.read.events dispatcher=default late=true":         0,
	} {
		require.Contains(t, got, name)
		require.Equal(t, want, got[name], name)
	}
	require.GreaterOrEqual(t, got["outbox.read.events dispatcher=default late=false"], 3.)
	require.Positive(t, got["outbox.read.duration dispatcher=default"])
	require.Positive(t, got["outbox.cursor.saves dispatcher=default"])
	for name := range got {
		require.NotContains(t, name, "poison")
		require.NotContains(t, name, "secret")
	}
}

func TestABatchIsOneTransaction(t *testing.T) {
	w := watch(t)
	require.NoError(t, w.SubscribeBatch("t", "h", func(context.Context, []events.Event) error { return nil }))
	w.publish("1", "a", "b", "c")
	require.NoError(t, w.runOnce())
	got := w.collect()
	const of = " dispatcher=default event_type=t handler=h"
	require.Equal(t, 3., got["outbox.deliveries"+of+" outcome=delivered"])
	require.Equal(t, 3., got["outbox.delivery.lag"+of])
	require.Equal(t, 1., got["outbox.handler.duration"+of+" outcome=delivered"])
}

func TestAStatusIsToldByGauges(t *testing.T) {
	w := watch(t, events.WithMaxAttempts(3))
	require.NoError(t, w.Subscribe("t", "h", func(context.Context, events.Event) error { return errors.New("broken") }))
	w.publish("1", "a", "b")
	require.Error(t, w.runOnce())
	registration, err := w.Watch(w.Dispatcher)
	require.NoError(t, err)
	got := w.collect()
	for name, want := range map[string]float64{
		"outbox.after_cursor dispatcher=default":                2,
		"outbox.failing dispatcher=default":                     1,
		"outbox.dead_letters dispatcher=default state=dead":     0,
		"outbox.dead_letters dispatcher=default state=requeued": 0,
		"outbox.subscriptions.behind dispatcher=default":        0,
		"outbox.producers dispatcher=default":                   0,
		"outbox.lease.held dispatcher=default":                  0,
		"outbox.working dispatcher=default":                     0,
		"outbox.window.events dispatcher=default":               0,
		"outbox.window.full dispatcher=default":                 0,
		"outbox.window.parked dispatcher=default":               0,
		"outbox.mark.age dispatcher=default":                    0,
	} {
		require.Contains(t, got, name)
		require.Equal(t, want, got[name], name)
	}
	require.Contains(t, got, "outbox.lag dispatcher=default")
	require.NoError(t, registration.Unregister())
	require.NotContains(t, w.collect(), "outbox.lag dispatcher=default")
}

// unreachable is a dispatcher whose database does not answer.
type unreachable struct{}

func (unreachable) Status(context.Context) (events.Status, error) {
	return events.Status{}, errors.New("unreachable")
}

func TestAStatusThatCannotBeReadShowsNoGauge(t *testing.T) {
	w := watch(t)
	_, err := w.Watch(unreachable{})
	require.NoError(t, err)
	var all metricdata.ResourceMetrics
	require.ErrorContains(t, w.reader.Collect(t.Context(), &all), "unreachable")
	require.Empty(t, all.ScopeMetrics)
}

// told is a dispatcher with a status.
type told events.Status

func (s told) Status(context.Context) (events.Status, error) { return events.Status(s), nil }

// What is not known has no gauge, which would say that there is nothing.
func TestWhatCouldNotBeReadShowsNoGauge(t *testing.T) {
	gaugesOf := func(status told) map[string]float64 {
		w := watch(t)
		status.Dispatcher = "d"
		_, err := w.Watch(status)
		require.NoError(t, err)
		return w.collect()
	}
	all := gaugesOf(told{})
	const letters = "outbox.dead_letters dispatcher=d state="
	for part, missing := range map[persistence.StatusPart][]string{
		persistence.StatusMark:        {"outbox.mark.age dispatcher=d"},
		persistence.StatusProducers:   {"outbox.mark.age dispatcher=d", "outbox.producers dispatcher=d"},
		persistence.StatusPartitions:  nil,
		persistence.StatusAfter:       {"outbox.after_cursor dispatcher=d"},
		persistence.StatusFailing:     {"outbox.failing dispatcher=d"},
		persistence.StatusDeadLetters: {letters + "dead", letters + "requeued", letters + "replayed", letters + "discarded"},
		persistence.StatusBehind:      {"outbox.subscriptions.behind dispatcher=d"},
		persistence.StatusLag:         {"outbox.lag dispatcher=d"},
		persistence.StatusDispatchers: {
			"outbox.after_cursor dispatcher=d", "outbox.failing dispatcher=d", "outbox.subscriptions.behind dispatcher=d", "outbox.lease.held dispatcher=d",
			letters + "dead", letters + "requeued", letters + "replayed", letters + "discarded",
		},
	} {
		status := told{}
		status.Unread = []persistence.UnreadPart{{Part: part, Error: "denied"}}
		want := maps.Clone(all)
		for _, name := range missing {
			require.Contains(t, want, name)
			delete(want, name)
		}
		require.Equal(t, want, gaugesOf(status), part)
	}
	got := gaugesOf(told{New: true})
	require.NotContains(t, got, "outbox.lag dispatcher=d", "it has not run yet")
	require.NotContains(t, got, "outbox.after_cursor dispatcher=d")
	require.Contains(t, got, "outbox.producers dispatcher=d")
}

func TestWhatIsMissingIsRefused(t *testing.T) {
	_, err := outboxotel.New(nil)
	require.ErrorIs(t, err, persistence.ErrInvalid)
	m, err := outboxotel.New(noop.NewMeterProvider())
	require.NoError(t, err)
	_, err = m.Watch(nil)
	require.ErrorIs(t, err, persistence.ErrInvalid)
}

// The page has each metric, with its unit, and no other.
func TestDocsNameEachMetric(t *testing.T) {
	page, err := os.ReadFile("../docs/observability.md")
	require.NoError(t, err)
	documented := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(outbox\\.[a-z_.]+)` \\| ([^ |]+) \\|").FindAllStringSubmatch(string(page), -1) {
		documented[m[1]] = m[2]
	}
	made := map[string]string{}
	for _, file := range []string{"metrics.go", "watch.go"} {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, m := range regexp.MustCompile(`(counter|histogram|seconds|number)\("(outbox\.[a-z_.]+)", (?:"([^" ]+)", )?"`).FindAllStringSubmatch(string(text), -1) {
			if m[3] == "" {
				m[3] = "s"
			}
			made[m[2]] = m[3]
		}
	}
	require.Len(t, made, 21)
	require.Equal(t, made, documented)
}
