package events

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/onward-go/outbox/persistence"
)

// deliver runs the handlers of one event. It reports whether the event is
// settled: applied, or a dead letter, for each of them. A failing handler does
// not stop the others.
func (d *Dispatcher) deliver(ctx context.Context, lease persistence.Lease, r persistence.Record, applied map[persistence.Marker]bool) (settled bool, err error) {
	settled = true
	var problems []error
	for _, s := range d.subscriptions(r.EventType) {
		if applied[s.marker(r)] {
			continue
		}
		entered, err := d.apply(ctx, r, s)
		if err == nil {
			continue
		}
		ok := false
		if entered && ctx.Err() == nil {
			ok, err = d.fail(ctx, lease, r, s, err)
		} else {
			// Not the event's fault: the dispatcher is being stopped, or the
			// transaction did not get as far as the handler.
			err = fmt.Errorf("event %s, handler %q: %w", r.ID, s.name, err)
		}
		settled = settled && ok
		problems = append(problems, err)
	}
	return settled, errors.Join(problems...)
}

// apply runs a handler in a transaction of its own, after its marker. It
// reports whether the handler was entered.
func (d *Dispatcher) apply(ctx context.Context, r persistence.Record, s subscription) (entered bool, err error) {
	err = protect(func() error {
		return d.tx.Atomically(ctx, func(ctx context.Context) error {
			recorded, err := d.idempotency.Record(ctx, s.marker(r))
			if err != nil || !recorded[0] {
				return err
			}
			entered = true
			return s.handler(WithAccountID(ctx, r.AccountID), eventOf(r))
		})
	})
	return entered, err
}

var errGoexit = errors.New("the handler called runtime.Goexit")

// protect runs fn on a goroutine of its own and makes errors of a panic and of
// runtime.Goexit, which would otherwise end the dispatcher's goroutine.
func protect(fn func() error) (err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		returned := false
		defer func() {
			if returned {
				return
			}
			switch v := recover().(type) {
			case nil:
				err = fmt.Errorf("%w\n%s", errGoexit, debug.Stack())
			case error:
				err = fmt.Errorf("the handler panicked: %w\n%s", v, debug.Stack())
			default:
				err = fmt.Errorf("the handler panicked: %v\n%s", v, debug.Stack())
			}
		}()
		err = fn()
		returned = true
	}()
	<-done
	return err
}
