package events_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/memstore"
	"github.com/onward-go/outbox/persistence"
)

// of returns an event of an aggregate.
func of(aggregate, id string) events.Event {
	evt := event(id)
	evt.AggregateID = aggregate
	return evt
}

// log remembers what was applied, in order.
type log struct {
	mu   sync.Mutex
	ids  []string
	when map[string]time.Time
}

func (l *log) add(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ids = append(l.ids, id)
	if l.when == nil {
		l.when = map[string]time.Time{}
	}
	l.when[id] = time.Now()
}

func (l *log) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string{}, l.ids...)
}

// handler applies an event, if check lets it.
func (l *log) handler(check func(context.Context, events.Event) error) events.Handler {
	return func(ctx context.Context, evt events.Event) error {
		if check != nil {
			if err := check(ctx, evt); err != nil {
				return err
			}
		}
		return persistence.AfterCommit(ctx, func(context.Context) { l.add(evt.ID) })
	}
}

// replica is a dispatcher that polls.
type replica struct {
	*events.Dispatcher
	t      *testing.T
	cancel context.CancelFunc
	done   chan error
}

// poll starts a dispatcher in the background.
func poll(t *testing.T, d *events.Dispatcher, onError func(error)) *replica {
	return pollEvery(t, time.Second, d, onError)
}

func pollEvery(t *testing.T, interval time.Duration, d *events.Dispatcher, onError func(error)) *replica {
	ctx, cancel := context.WithCancel(t.Context())
	r := &replica{d, t, cancel, make(chan error, 1)}
	go func() { r.done <- d.Poll(ctx, interval, 100, onError) }()
	return r
}

// stop ends it and waits.
func (r *replica) stop() {
	r.t.Helper()
	r.cancel()
	require.NoError(r.t, <-r.done)
}

func newDispatcher(t *testing.T, store *memstore.Store, h events.Handler, opts ...events.Option) *events.Dispatcher {
	t.Helper()
	d := events.NewDispatcher(store, store, store, store, opts...)
	require.NoError(t, d.Subscribe("t", "h", h))
	return d
}

func load(t *testing.T, store *memstore.Store) persistence.State {
	t.Helper()
	state, err := store.Load(context.Background(), events.DefaultName)
	require.NoError(t, err)
	return state
}

var errBroken = errors.New("broken")

// elapse lets time pass, and everything come to rest.
func elapse(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}
