package events

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"github.com/onward-go/outbox/persistence"
)

// delivery is what one handler still has to be applied to.
type delivery struct {
	subscription
	marker    persistence.Marker
	recorded  bool          // the sidecar knows of failures
	failures  int           // how many
	lastError string        // of the last of them
	faults    int           // in a row, that were not the event's and are not recorded
	tried     bool          // in this term
	due       time.Time     // before it is not tried again
	counted   bool          // the try that runs is among the failures already
	exhausted bool          // what is left to do is the dead letter
	began     time.Time     // the last try, if somebody is to be told how long it
	took      time.Duration // took
	exited    error         // the try that the handler has ended together with the goroutine
}

// deliver tries the handlers of an event that are not settled. A failing one
// does not stop the others. Unless all are settled it returns when to try again.
func (t *term) deliver(e *entry) (settled bool, again time.Time) {
	for i := 0; i < len(e.pending); {
		dl := e.pending[i]
		if !t.notDue(dl) && t.try(e.record, dl, e.careful) {
			e.pending = slices.Delete(e.pending, i, i+1)
			continue
		}
		i++
	}
	return t.delivered(e)
}

// delivered tells whether an event that has been tried is settled, and if not,
// when to try again.
func (t *term) delivered(e *entry) (settled bool, again time.Time) {
	if len(e.pending) == 0 {
		if e.found != nil {
			t.tally.settle(e.found)
		}
		return true, time.Time{}
	}
	if !t.patient || t.stopping() {
		return false, time.Time{} // one try a pass, and none once the term ends
	}
	next := slices.MinFunc(e.pending, func(a, b *delivery) int { return a.due.Compare(b.due) })
	return false, next.due
}

// try applies a handler, and reports whether that settled its delivery. It does
// not return if the handler ends the goroutine; the next try tells what came of it.
func (t *term) try(r persistence.Record, dl *delivery, careful bool) (settled bool) {
	if err := dl.exited; err != nil {
		dl.exited = nil
		dl.took = since(dl.began)
		return t.fail(r, dl, true, err)
	}
	if t.stopping() {
		return false
	}
	dl.tried = true
	if dl.exhausted || careful && dl.failures >= t.d.maxAttempts {
		return t.giveUp(r, dl, errors.New(dl.lastError))
	}
	if careful && !dl.counted {
		// The process may end in the handler, and nobody would know why.
		before := dl.lastError
		if err := t.record(dl, errProcessEnded, 0); err != nil {
			return t.postpone(r, dl, fmt.Errorf("the try could not be counted: %w", err))
		}
		dl.lastError, dl.counted = before, true
	}
	entered, err := t.apply(r, dl, t.d.tx.Atomically)
	return t.tried(r, dl, entered, err)
}

// tried decides what came of a try. It reports whether that settled the delivery.
func (t *term) tried(r persistence.Record, dl *delivery, entered bool, err error) (settled bool) {
	dl.took = since(dl.began)
	if err == nil {
		if entered {
			t.d.tellOf(ofDelivered, &r, dl, nil)
		}
		t.forget(dl)
		return true
	}
	return t.fail(r, dl, entered, err)
}

// notDue reports whether a delivery is not to be tried now. A pass tries once.
func (t *term) notDue(dl *delivery) bool {
	switch {
	case dl.exited != nil:
		return false
	case t.patient:
		return time.Now().Before(dl.due)
	}
	return dl.tried
}

// atomically is that of a Transactor.
type atomically func(ctx context.Context, fn func(context.Context) error) error

// apply runs a handler in a transaction of its own, after its marker. It
// reports whether the handler was entered.
func (t *term) apply(r persistence.Record, dl *delivery, in atomically) (entered bool, err error) {
	guard := func(fn func() error) error { return protect(fn, func(err error) { dl.exited = err }) }
	dl.began = t.d.now()
	applied := false
	ctx, cancel := t.timeouts.next()
	defer cancel()
	entered, err = t.d.run(ctx, in, guard, r, dl.handler, func(ctx context.Context) error {
		err := t.d.idempotency.RecordNew(ctx, dl.marker)
		applied = errors.Is(err, persistence.ErrApplied)
		return err
	})
	if applied { // however the transaction has ended
		return false, t.confirm(dl.marker)
	}
	return entered, err
}

// confirm makes sure that a marker exists. A database may refuse one for somebody
// else's key, in a trigger, which is not to pass for an event that has been applied.
func (t *term) confirm(m persistence.Marker) error {
	applied, err := t.d.idempotency.Applied(t.ctx, m)
	switch {
	case err != nil:
		return err
	case !applied[0]:
		return fmt.Errorf("the marker of event %s, handler %q, is said to exist, and does not: look for a trigger, or a unique index of your own, on the table of markers", m.Event, m.Handler)
	}
	t.meets.Store(true)
	return nil
}

// run runs a handler in a transaction of its own, unless what is written in it
// first fails. Ctx ends when the handler's time is up. It reports whether the handler
// was entered.
func (d *Dispatcher) run(ctx context.Context, in atomically, guard guard, r persistence.Record, handler Handler, first func(context.Context) error) (entered bool, err error) {
	return d.transact(ctx, in, guard, func(ctx context.Context) (func() error, error) {
		if err := first(ctx); err != nil {
			return nil, err
		}
		return func() error { return handler(WithAccountID(ctx, r.AccountID), eventOf(r)) }, nil
	})
}

// transact runs the handler that prepare returns, if any, in one transaction with
// what prepare does.
func (d *Dispatcher) transact(ctx context.Context, in atomically, guard guard, prepare func(context.Context) (handle func() error, err error)) (entered bool, err error) {
	err = guard(func() error {
		return in(ctx, func(ctx context.Context) error {
			handle, err := prepare(ctx)
			if err != nil || handle == nil {
				return err
			}
			entered = true
			return handle()
		})
	})
	if err != nil && errors.Is(context.Cause(ctx), errHandlerTimeout) {
		err = fmt.Errorf("%w after %s: %w", errHandlerTimeout, d.handlerTimeout, err)
	}
	return entered, err
}

var (
	errGoexit         = errors.New("the handler called runtime.Goexit")
	errHandlerTimeout = errors.New("the handler has timed out")
	errProcessEnded   = errors.New("the process ended while the handler ran")
)

// guard runs a function that calls a handler.
type guard func(fn func() error) error

// protect makes an error of a panic. It cannot stop runtime.Goexit, which ends
// the goroutine: exited is told, as the last thing that happens on it.
func protect(fn func() error, exited func(error)) (err error) {
	returned := false
	defer func() {
		if returned {
			return
		}
		switch v := recover().(type) {
		case nil:
			exited(fmt.Errorf("%w\n%s", errGoexit, debug.Stack()))
		case error:
			err = fmt.Errorf("the handler panicked: %w\n%s", v, debug.Stack())
		default:
			err = fmt.Errorf("the handler panicked: %v\n%s", v, debug.Stack())
		}
	}()
	err = fn()
	returned = true
	return err
}

// apart runs fn on a goroutine of its own, for callers who want theirs back.
func apart(fn func() error) error {
	done := make(chan error, 1)
	go func() { done <- protect(fn, func(err error) { done <- err }) }()
	return <-done
}
