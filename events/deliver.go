package events

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/onward-go/outbox/internal/usercode"
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

// deliver tries the handlers of an event that are not settled, but for those that
// get it in a batch. A failing one does not stop the others.
func (t *term) deliver(e *entry) {
	for i := 0; i < len(e.pending); {
		dl := e.pending[i]
		if !t.notDue(dl) && !e.batches(dl) && t.try(e.record, dl, e.careful) {
			e.pending = slices.Delete(e.pending, i, i+1)
			continue
		}
		i++
	}
}

// leaves tells the audit of what it has found that is settled.
func (t *term) leaves(e *entry) {
	if e.found != nil {
		t.tally.settle(e.found)
	}
}

// try applies a handler, and reports whether that settled its delivery. It does
// not return if the handler ends the goroutine; the next try tells what came of it.
func (t *term) try(r persistence.Record, dl *delivery, careful bool) (settled bool) {
	if err := dl.exited; err != nil {
		dl.exited, dl.tried = nil, true
		return t.tried(r, dl, true, err)
	}
	if t.stopping() {
		return false
	}
	dl.tried = true
	if dl.exhausted || careful && !dl.counted && dl.failures >= t.d.maxAttempts {
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
	if late, ok := err.(*afterHandler); ok {
		entered, err = t.late(late, where(r, dl), dl.marker)
	}
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
	dl.began = t.d.now()
	applied := false
	ctx, cancel := t.timeouts.next()
	defer cancel()
	exited := func(err error) { dl.exited = err }
	entered, err = t.d.run(ctx, in, onThis(exited), r, dl.handler, func(ctx context.Context) error {
		err := usercode.Sound(t.d.idempotency.RecordNew(ctx, dl.marker))
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
func (d *Dispatcher) run(ctx context.Context, in atomically, on goroutine, r persistence.Record, handler Handler, first func(context.Context) error) (entered bool, err error) {
	return d.transact(ctx, in, on, func(ctx context.Context) (func() error, error) {
		if err := first(ctx); err != nil {
			return nil, err
		}
		return func() error { return handler(WithAccountID(ctx, r.AccountID), eventOf(r)) }, nil
	})
}

// transact runs the handler that prepare returns, if any, in one transaction with
// what prepare does. An error of it can be looked into without care.
func (d *Dispatcher) transact(ctx context.Context, in atomically, on goroutine, prepare func(context.Context) (handle func() error, err error)) (entered bool, err error) {
	handled, over := false, false
	err = on(
		func() error {
			err := in(ctx, func(ctx context.Context) error {
				handle, err := prepare(ctx)
				if err != nil || handle == nil {
					return err
				}
				entered = true
				err = usercode.Sound(handle())
				handled = err == nil
				return err
			})
			over = true
			return err
		},
		func() string {
			if handled {
				return "a function of AfterCommit"
			}
			return "the handler"
		},
		func(err error) error {
			if err != nil && handled && !over {
				return &afterHandler{err}
			}
			return err
		},
	)
	if err != nil && errors.Is(context.Cause(ctx), errHandlerTimeout) && !(handled && !over) {
		err = fmt.Errorf("%w after %s: %w", errHandlerTimeout, d.handlerTimeout, err)
	}
	return entered, err
}

var (
	errHandlerTimeout = errors.New("the handler has timed out")
	errProcessEnded   = errors.New("the process ended while the handler ran")
)

// afterHandler is the error of a transaction whose handler has succeeded, and which
// has then ended in a panic, or together with the goroutine. That is what a function
// of AfterCommit does, so it has most likely committed.
type afterHandler struct{ error }

func (a *afterHandler) Unwrap() error { return a.error }

// late looks whether the transaction has committed: then all its markers exist.
func (t *term) late(a *afterHandler, where string, markers ...persistence.Marker) (entered bool, err error) {
	applied, err := t.d.idempotency.Applied(t.ctx, markers...)
	switch {
	case err != nil:
		return false, fmt.Errorf("whether it was applied could not be read: %w: %w", usercode.Sound(err), a.error)
	case slices.Contains(applied, false):
		return true, a.error
	}
	t.d.log.LogAttrs(t.ctx, slog.LevelError, "outbox: function of AfterCommit failed", slog.String("dispatcher", t.d.name), slog.Any("error", a.error))
	t.report(fmt.Errorf("%s: it has been applied, and then %w", where, a.error))
	return true, nil
}

// goroutine runs a function that calls a handler, on the goroutine that it stands for.
// What names the code that did not return, and mark returns what such an error is to
// be taken for.
type goroutine func(fn func() error, what func() string, mark func(error) error) error

// onThis is the goroutine of the caller. It does not return if the handler ends that:
// exited is told, as the last thing that happens on it.
func onThis(exited func(error)) goroutine {
	return func(fn func() error, what func() string, mark func(error) error) error {
		return mark(usercode.Run(what, fn, func(err error) { exited(mark(err)) }))
	}
}

// apart is a goroutine of its own, for callers who want theirs back.
func apart(fn func() error, what func() string, mark func(error) error) error {
	return mark(usercode.Apart(what, fn))
}
