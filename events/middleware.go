package events

import (
	"context"
	"errors"
	"slices"
)

// Middleware wraps a handler, to do something before and after it: in its
// transaction and with its context. It may return an error in its place.
type Middleware func(next Handler) Handler

// Use has the handlers that are subscribed from now on wrapped, the first
// middleware outermost. Call it before the first Subscribe: later it is refused,
// and RunOnce and Poll return the error, [persistence.ErrInvalid].
//
// It wraps those of [Dispatcher.SubscribeBatch], too: around one call of such a
// handler each middleware is called once for each event, one inside of the other,
// in the order of the events. What a middleware does with next is asked of it for
// one event, so a batch in which one does not call it, calls it again, or turns its
// error into none, is rolled back and tried again in smaller ones, down to the
// single event.
func (d *Dispatcher) Use(middleware ...Middleware) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.handlers) > 0 {
		d.invalid = append(d.invalid, invalid("Use comes too late, there are subscriptions already"))
	}
	for _, m := range middleware {
		if m == nil {
			d.invalid = append(d.invalid, invalid("middleware %d is nil", len(d.middleware)))
			return
		}
		d.middleware = append(d.middleware, m)
	}
}

// wrap returns a subscription whose handler is in the middleware. It reports which
// middleware has returned none; -1 is that all have.
func (d *Dispatcher) wrap(s subscription) (wrapped subscription, missing int) {
	d.mu.Lock()
	middleware := slices.Clone(d.middleware)
	d.mu.Unlock()
	if len(middleware) == 0 {
		return s, -1
	}
	h := s.handler
	if s.batch != nil {
		h = s.batch.next
	}
	for i, m := range slices.Backward(middleware) {
		if h = m(h); h == nil {
			return s, i
		}
	}
	if s.batch != nil {
		s.batch.wrapped = h
	} else {
		s.handler = h
	}
	return s, -1
}

// batchCall is one call of a batch handler in its middleware.
type batchCall struct {
	evts    []Event // as they are passed on
	entered []int   // how often next was called, by event
	failed  bool    // the handler has
}

// batchStep is an event of a call, in the context of the middleware around it.
type batchStep struct {
	call *batchCall
	i    int
}

type batchStepKey struct{ b *batchHandler }

var (
	errNotTogether  = errors.New("a middleware has not called next once, or has dropped its error, which cannot be done in a batch")
	errContextNotOn = errors.New("a middleware has called next with a context that is not the one it was given")
)

// call calls the handler, in its middleware if there is any.
func (b *batchHandler) call(ctx context.Context, evts []Event) error {
	if b.wrapped == nil {
		return b.handler(ctx, evts)
	}
	c := &batchCall{evts: slices.Clone(evts), entered: make([]int, len(evts))}
	err := b.enter(ctx, batchStep{c, 0})
	if err == nil && len(evts) > 1 && (c.failed || slices.ContainsFunc(c.entered, func(n int) bool { return n != 1 })) {
		return errNotTogether
	}
	return err
}

// enter calls the middleware of an event.
func (b *batchHandler) enter(ctx context.Context, step batchStep) error {
	evt := step.call.evts[step.i]
	return b.wrapped(WithAccountID(context.WithValue(ctx, batchStepKey{b}, step), evt.AccountID), evt)
}

// next is what the middleware of an event wraps: that of the next event, or the
// handler.
func (b *batchHandler) next(ctx context.Context, evt Event) error {
	step, ok := ctx.Value(batchStepKey{b}).(batchStep)
	if !ok {
		return errContextNotOn
	}
	c := step.call
	c.evts[step.i] = evt
	c.entered[step.i]++
	if step.i+1 < len(c.evts) {
		return b.enter(ctx, batchStep{c, step.i + 1})
	}
	err := b.handler(WithAccountID(ctx, ""), c.evts)
	c.failed = c.failed || err != nil
	return err
}
