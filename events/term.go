package events

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/onward-go/outbox/internal/usercode"
	"github.com/onward-go/outbox/persistence"
)

// term is one tenure of the lease: what the dispatcher knows from the moment it
// takes the lease until it gives it up or loses it.
//
// Its goroutine reads, moves the cursor and saves it; lanes deliver; a keeper
// renews the lease; an auditor looks behind the cursor; dead letters that have
// been requeued are replayed.
type term struct {
	d       *Dispatcher
	lease   persistence.Lease
	patient bool // waits for back-offs, and tries again

	// ctx is that of handlers and of what is written for them. It ends when the
	// lease is lost, or the dispatcher does not wait for handlers any longer.
	ctx      context.Context
	cancel   context.CancelCauseFunc
	timeouts *timeouts // of handlers
	closing  atomic.Bool
	keeper   sync.WaitGroup
	helpers  sync.WaitGroup // audit, replays
	quit     context.CancelFunc
	replays  atomic.Bool // a handler is, or may be, in a replay

	handlers map[string][]*served // by event type
	behind   []persistence.Subscription
	resumed  persistence.Cursor // the cursor that was found
	began    time.Time
	looked   time.Time // for handlers that it lacks
	clock    time.Time // the database's, when it began
	fitted   time.Time // when the lanes were made to fit the pool
	attempts map[persistence.Marker]persistence.Attempt
	meets    atomic.Bool // events that are applied already, the last time that it looked
	careful  int         // so many more events may be what ended the former process

	lanes   *lanes
	ahead   int    // so many events are to wait, for batches side by side to be full
	changed signal // somebody waits for it: see lanes.await
	window  window
	saved   persistence.Cursor // window.low, when it was last saved
	even    atomic.Bool        // no handler is behind the cursor
	// Everything before mark and not after complete that can ever be read has been.
	mark     time.Time
	complete persistence.Cursor
	lateLeft bool          // the last read has left some of what is late
	marked   time.Time     // when the mark was asked for
	held     time.Duration // how long to wait until it is asked for again while the window is full
	pace     int           // how many events a read asks for at most
	// holdouts are those of the mark.
	holdouts persistence.Holdouts
	unsaved  int   // settled entries in the window, when it was asked for
	instant  int64 // entries that were settled when they were read
	passed   int64 // entries that the cursor has passed
	tally    *tally

	mu       sync.Mutex
	problems []error
	settled  []persistence.Marker // deliveries that had failed before
}

// served is a handler and where it begins.
type served struct {
	subscription
	state persistence.SubscriptionState
}

// begin takes the lease. Handlers get a context that ends with base.
func (d *Dispatcher) begin(ctx, base context.Context, patient bool) (*term, error) {
	began := time.Now()
	lease, err := d.acquire(ctx)
	if err != nil {
		return nil, err
	}
	t := &term{d: d, lease: lease, patient: patient, began: began, changed: newSignal(), pace: firstPace}
	t.ctx, t.cancel = context.WithCancelCause(persistence.WithLease(context.WithValue(base, passing{d}, true), lease))
	t.timeouts = &timeouts{parent: t.ctx, after: d.handlerTimeout}
	t.lanes = t.newLanes()
	t.quit = func() {}
	begun := false
	defer func() {
		if !begun {
			t.abandon()
		}
	}()
	err = t.resume(ctx)
	begun = true
	if err != nil {
		err = errors.Join(err, t.release(ctx))
		t.cancel(errStopped)
		return nil, err
	}
	d.log.LogAttrs(ctx, t.level(), "outbox: lease acquired", slog.String("dispatcher", d.name), slog.String("owner", d.owner),
		slog.Int64("token", lease.Token), slog.Bool("unclean", lease.Unclean), slog.String("cursor", t.resumed.String()))
	t.tellOfLease(LeaseAcquired, nil)
	d.current.Store(t)
	var helpers context.Context
	helpers, t.quit = context.WithCancel(context.WithoutCancel(t.ctx))
	t.keeper.Go(func() {
		if err := usercode.Apart(named("a renewal"), func() error { t.keep(helpers); return nil }); err != nil {
			t.lose(fmt.Errorf("dispatcher %q, token %d: %w: %w", d.name, t.lease.Token, persistence.ErrLeaseLost, err))
		}
	})
	return t, nil
}

// help runs fn beside the work until ctx ends, and again if a store panics, or ends
// its goroutine.
func (t *term) help(ctx context.Context, what string, fn func(context.Context)) {
	t.helpers.Go(func() {
		for {
			err := usercode.Apart(named(what), func() error { fn(ctx); return nil })
			if err == nil {
				return
			}
			t.report(err)
			if !sleep(ctx, t.ctx, auditEvery/10) {
				return
			}
		}
	})
}

func named(what string) func() string { return func() string { return what } }

func (t *term) newLanes() *lanes {
	widthNow := func() int {
		lanes, _ := t.d.width()
		return lanes
	}
	return &lanes{
		deliverer:   t,
		width:       widthNow(),
		widthNow:    widthNow,
		fitted:      time.Now(),
		single:      t.d.concurrency == 1,
		batchSize:   t.d.batchSize,
		suspectTime: t.d.handlerTimeout + t.timeouts.lateness(),
		changed:     t.changed,
		byKey:       map[laneKey]*lane{},
		batches:     map[*batchHandler][]*lane{},
	}
}

// acquire registers the handlers and takes the lease. A dispatcher that somebody
// has forgotten is made anew.
func (d *Dispatcher) acquire(ctx context.Context) (persistence.Lease, error) {
	for again := false; ; again = true {
		if err := d.register(ctx); err != nil {
			return persistence.Lease{}, err
		}
		lease, err := d.cursors.Acquire(ctx, d.name, d.owner, d.lease)
		if !errors.Is(err, persistence.ErrNotFound) || again {
			return lease, err
		}
		d.registered.at = time.Time{}
	}
}

// resume loads what is known, and finds where to read on.
func (t *term) resume(ctx context.Context) error {
	d := t.d
	state, err := d.cursors.Load(ctx, d.name)
	if err != nil {
		return err
	}
	subscriptions := d.subscriptions()
	states, err := d.cursors.Serve(ctx, t.lease, keysOf(subscriptions)...)
	if err != nil {
		return err
	}
	t.resumed, t.window.low = state.Cursor, state.Cursor
	t.handlers = map[string][]*served{}
	for i, s := range subscriptions {
		t.handlers[s.eventType] = append(t.handlers[s.eventType], &served{s, states[i]})
		if s.batch != nil {
			t.ahead = d.batchesAhead(t.lanes.width)
		}
		behind := states[i].Behind
		if behind == nil {
			continue
		}
		t.behind = append(t.behind, states[i].Subscription)
		if behind.Compare(t.window.low) < 0 {
			t.window.low = *behind
		}
	}
	t.window.frontier, t.saved = t.window.low, t.window.low
	if len(t.behind) > 0 && t.window.low == t.resumed { // they are new
		if err := d.cursors.Save(ctx, t.lease, persistence.Progress{Cursor: t.resumed, Count: state.Count, Offsets: state.Offsets, CaughtUp: t.behind}); err != nil {
			return err
		}
		t.behind = nil
	}
	t.even.Store(len(t.behind) == 0)
	t.meets.Store(true)
	t.attempts = map[persistence.Marker]persistence.Attempt{}
	for _, a := range state.Attempts {
		t.attempts[persistence.Marker{Event: a.Event, Handler: a.Handler}.Key()] = a
	}
	if t.lease.Unclean {
		t.careful = d.windowEvents
	}
	t.tally = newTally(state)
	mark, err := d.store.SafeMark(ctx)
	t.mark, t.clock, t.marked = mark.Time, mark.Now, time.Now()
	if err == nil {
		d.see(mark.Now)
	}
	return err
}

// level is that of what is logged about the lease, which each pass takes anew.
func (t *term) level() slog.Level {
	if t.patient {
		return slog.LevelInfo
	}
	return slog.LevelDebug
}

var errStopped = errors.New("the dispatcher has stopped")

// stopping reports whether no handler may be started any more.
func (t *term) stopping() bool { return t.closing.Load() || t.ctx.Err() != nil }

// lose ends the term, since somebody else has the lease, or may have.
func (t *term) lose(cause error) {
	if t.ctx.Err() == nil {
		t.d.log.LogAttrs(t.ctx, slog.LevelWarn, "outbox: lease lost", slog.String("dispatcher", t.d.name), slog.Any("error", cause))
		t.tellOfLease(LeaseLost, cause)
	}
	t.cancel(cause)
}

// check ends the term if an error of the sidecar says that the lease is lost.
func (t *term) check(err error) {
	if usercode.Is(err, persistence.ErrLeaseLost) {
		t.lose(err)
	}
}

// lost returns why the lease is lost, or nil.
func (t *term) lost() error {
	if cause := context.Cause(t.ctx); errors.Is(cause, persistence.ErrLeaseLost) {
		return cause
	}
	return nil
}

// report keeps an error for whoever runs the dispatcher. That of a handler that
// was stopped together with the dispatcher is of no interest to Poll.
func (t *term) report(err error) {
	if err == nil || t.patient && t.ctx.Err() != nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.problems = append(t.problems, err)
	t.changed.tell()
}

// reported returns what has been reported since it was last asked.
func (t *term) reported() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	err := errors.Join(t.problems...)
	t.problems = nil
	return err
}

// forget has the failures of a settled delivery forgotten with the next save.
func (t *term) forget(dl *delivery) {
	if !dl.recorded {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.settled = append(t.settled, dl.marker)
}

// close ends the term. Handlers that run have the grace to come to an end; then
// their contexts are cancelled.
func (t *term) close(grace time.Duration) error {
	defer t.d.current.CompareAndSwap(t, nil)
	t.closing.Store(true)
	t.lanes.close()
	patience := time.NewTimer(grace)
	defer patience.Stop()
	for !t.lanes.await(load.still) || t.replays.Load() {
		select {
		case <-t.changed:
		case <-patience.C:
			t.cancel(errStopped)
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.ctx), closeTimeout)
	defer cancel()
	var err error
	if t.lost() == nil {
		t.advance()
		err = t.save(ctx)
	}
	t.quit()
	t.helpers.Wait()
	t.keeper.Wait()
	t.rememberFaults()
	if t.lost() == nil {
		err = errors.Join(err, t.release(ctx))
	}
	t.cancel(errStopped)
	return err
}

// abandon ends the term of a goroutine that panics, or is ended by runtime.Goexit, as
// a store may do. It gives the lease back, and waits for no handler: their contexts
// are cancelled, and markers stop whatever they have been at.
func (t *term) abandon() {
	t.d.current.CompareAndSwap(t, nil)
	t.closing.Store(true)
	t.cancel(errStopped)
	t.lanes.close()
	t.quit()
	ended := make(chan struct{})
	go func() {
		t.helpers.Wait()
		t.keeper.Wait() // which may be taking the lease anew
		close(ended)
	}()
	timer := time.NewTimer(closeTimeout)
	defer timer.Stop()
	select {
	case <-ended:
	case <-timer.C:
	}
	if err := t.release(t.ctx); err != nil {
		t.d.log.LogAttrs(t.ctx, slog.LevelError, "outbox: pass failed", slog.String("dispatcher", t.d.name), slog.Any("error", err))
	}
}

// rememberFaults keeps, for the next pass, how many faults in a row there were that
// are neither an event's nor recorded. Nothing runs any more.
func (t *term) rememberFaults() {
	t.d.faults = nil
	for _, e := range t.window.entries {
		for _, dl := range e.pending {
			if dl.faults == 0 {
				continue
			}
			if t.d.faults == nil {
				t.d.faults = map[persistence.Marker]int{}
			}
			t.d.faults[dl.marker.Key()] = dl.faults
		}
	}
}

// closeTimeout bounds what is written when the dispatcher stops.
const closeTimeout = 5 * time.Second

func (t *term) release(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	if err := t.d.cursors.Release(ctx, t.lease); err != nil {
		return fmt.Errorf("the lease could not be released, it will expire: %w", usercode.Sound(err))
	}
	t.d.log.LogAttrs(ctx, t.level(), "outbox: lease released", slog.String("dispatcher", t.d.name), slog.Int64("token", t.lease.Token))
	t.tellOfLease(LeaseReleased, nil)
	return nil
}
