package events

// Middleware wraps a handler, to do something before and after it: in its
// transaction and with its context. It may return an error in its place.
type Middleware func(next Handler) Handler

// Use has the handlers that are subscribed from now on wrapped, the first
// middleware outermost. Call it before the first Subscribe: later it is refused,
// and RunOnce and Poll return the error, [persistence.ErrInvalid]. Handlers of
// [Dispatcher.SubscribeBatch] are not wrapped.
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

// wrap returns a handler in its middleware. The caller holds the mutex.
func (d *Dispatcher) wrap(h Handler) Handler {
	for i := len(d.middleware) - 1; i >= 0; i-- {
		h = d.middleware[i](h)
	}
	return h
}
