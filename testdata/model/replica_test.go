package model

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/persistence"
)

const (
	dispatcherName = "d"
	lease          = 10 * time.Second
	maxAttempts    = 3
	// backOff is what Poll waits after a failure. A random half of it is spent,
	// so nothing in a sequence takes a time between the half and the whole.
	backOff = time.Second
	// pollInterval is too short for Poll to make a random part of it.
	pollInterval = 8 * time.Nanosecond
	// markPause is a little longer than RunOnce waits before it looks again for
	// the safe mark.
	markPause = 21 * time.Millisecond
)

// config is how a replica is deployed.
type config struct {
	// upgraded replicas have handlers B and C, too.
	upgraded bool
	width    int
	window   int // 0 is the default
}

// replica is a process with a dispatcher, until it crashes or is deployed anew.
type replica struct {
	*gate
	m      *machine
	name   string
	config config
	d      *events.Dispatcher

	busy      bool // a pass or Poll runs
	polls     bool
	stopping  bool // it was told to
	cancel    context.CancelFunc
	owner     string             // of the lease, as the dispatcher calls itself
	token     int64              // that it was given last
	granted   map[int64]bool     // all of them
	fencedOff bool               // a write was made under a lease that was lost
	keeps     bool               // the lease, since an operator has come in between, or it could not be released
	passed    int                // events, by the last pass
	last      error              // of the last pass
	replays   persistence.Marker // what it replays by itself, if anything
}

func (r *replica) String() string { return "replica " + r.name }

// deploy starts a process.
func (m *machine) deploy(name string, c config) *replica {
	r := &replica{gate: newGate(), m: m, name: name, config: c, granted: map[int64]bool{}}
	options := []events.Option{
		events.WithName(dispatcherName),
		events.WithConcurrency(c.width),
		events.WithLease(lease),
		events.WithMaxAttempts(maxAttempts),
		events.WithBackoff(backOff, backOff),
		events.WithSubscriptionExpiry(100 * 365 * 24 * time.Hour),
	}
	if c.window > 0 {
		options = append(options, events.WithWindow(c.window, 1<<20))
	}
	r.d = events.NewDispatcher(gatedOutbox{m.Outbox, r}, gatedCursors{m.Cursors, r}, gatedTransactor{m.Transactor, r}, gatedIdempotency{m.Idempotency, r}, options...)
	for _, s := range subscriptions {
		var err error
		switch {
		case !c.has(s):
		case takesBatches(s):
			err = r.d.SubscribeBatch(s.EventType, s.Handler, r.batchHandler(s.Handler))
		default:
			err = r.d.Subscribe(s.EventType, s.Handler, r.handler(s.Handler))
		}
		if err != nil {
			m.t.Fatalf("subscribe: %v", err)
		}
	}
	return r
}

// subscriptions are those of an upgraded replica. The others have those of A. A type
// has two handlers of batches and one of single events, another one of each, and the
// third a single one, of batches, so that several events of an aggregate share a batch.
var subscriptions = []persistence.Subscription{
	{EventType: "t", Handler: "A"}, {EventType: "t", Handler: "B"}, {EventType: "t", Handler: "C"},
	{EventType: "u", Handler: "B"}, {EventType: "u", Handler: "C"},
	{EventType: "v", Handler: "B"},
}

func takesBatches(s persistence.Subscription) bool {
	return s.Handler == "B" || s.Handler == "C" && s.EventType == "t"
}

// has reports whether a replica has a handler.
func (c config) has(s persistence.Subscription) bool { return c.upgraded || s.Handler == "A" }

// handler returns a handler that notes its effect, unless the event is poison
// for it.
func (r *replica) handler(handler string) events.Handler {
	return func(ctx context.Context, e events.Event) error {
		it := effect{handler, e.ID}
		_, err := inTransaction(ctx, r, "apply "+name(e.ID, handler), nothing(func() error { return r.m.backend.apply(ctx, it) }))
		if err != nil {
			return err
		}
		err = r.m.taste(it)
		if errors.Is(err, errKilled) {
			r.m.interrupted++
			r.crash()
			r.cancel()
		}
		return err
	}
}

func (r *replica) batchHandler(handler string) events.BatchHandler {
	one := r.handler(handler)
	return func(ctx context.Context, evts []events.Event) error {
		for _, e := range evts {
			if err := one(ctx, e); err != nil {
				return err
			}
		}
		return nil
	}
}

// The errors of handlers.
var (
	errPoison    = errors.New("poison")
	errTransient = errors.New("transient poison")
	errKilled    = errors.New("the handler has killed the process")
)

// start begins a pass or Poll, on a goroutine of its own.
func (r *replica) start(polls bool, run func(ctx context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	r.busy, r.polls, r.stopping, r.fencedOff, r.keeps, r.cancel, r.replays = true, polls, false, false, false, cancel, persistence.Marker{}
	go func() {
		defer cancel()
		r.ended(run(ctx))
	}()
}

// ended is called with what a pass, or Poll, returns.
func (r *replica) ended(err error) {
	r.m.mu.Lock()
	r.busy, r.last = false, err
	r.m.mu.Unlock()
	switch {
	case r.crashed() || r.polls:
	case r.fencedOff && !errors.Is(err, persistence.ErrLeaseLost):
		r.m.violated("%s: the lease was lost, and the pass returns: %v", r, err)
	case err != nil && !expected(err):
		line, _, _ := strings.Cut(err.Error(), "\n") // without the stack, which is never the same
		r.m.violated("%s: the pass returns: %s", r, line)
	}
}

// expected reports whether a pass may return the error in the course of a
// sequence.
func expected(err error) bool {
	for _, target := range []error{
		errPoison, errTransient, errFault, events.ErrDeadLettered, events.ErrLetterState, errElsewhere, persistence.ErrLeaseHeld, persistence.ErrLeaseLost,
		context.Canceled, context.DeadlineExceeded,
	} {
		if errors.Is(err, target) {
			return true
		}
	}
	return strings.Contains(err.Error(), "runtime.Goexit") || strings.Contains(err.Error(), "the handler has timed out")
}

func (r *replica) pass(limit int) {
	r.start(false, func(ctx context.Context) error {
		n, err := r.d.RunOnce(ctx, limit)
		r.passed = n
		r.m.log("   %s: the pass ends: %d, %v", r, n, err)
		return err
	})
}

func (r *replica) poll(batch int) {
	r.start(true, func(ctx context.Context) error {
		return r.d.Poll(ctx, pollInterval, batch, func(err error) {
			r.m.log("   %s: %v", r, err)
		})
	})
}
