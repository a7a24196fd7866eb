package health

import (
	"log/slog"
	"time"

	"github.com/onward-go/outbox/internal/usercode"
)

// Option configures a [Handler].
type Option func(*handler)

// WithMaxLag sets how old the oldest event may be that is not settled; greater than
// 0. The default is [DefaultMaxLag]. An event whose handler fails counts until it is
// a dead letter, so allow for the back-offs in between. See [events.Status] for what
// a dispatcher knows that stands by.
func WithMaxLag(lag time.Duration) Option {
	return func(h *handler) {
		h.maxLag = lag
		if lag <= 0 {
			h.refuse("the greatest lag is %s, it must be greater than 0", lag)
		}
	}
}

// WithTimeout sets how long the database may take to answer; greater than 0. The
// default is [DefaultTimeout].
func WithTimeout(timeout time.Duration) Option {
	return func(h *handler) {
		h.timeout = timeout
		if timeout <= 0 {
			h.refuse("the timeout is %s, it must be greater than 0", timeout)
		}
	}
}

// WithPolling makes it a problem if Poll does not run in this process, at work or
// standing by.
func WithPolling() Option {
	return func(h *handler) { h.polling = true }
}

// WithDetails puts the whole [events.Status] into the body: the errors of handlers,
// the names of aggregates, and the sessions of producers. Show it to operators only.
func WithDetails() Option {
	return func(h *handler) { h.details = true }
}

// WithLogger sets where errors are logged. The default, and nil, discard.
func WithLogger(logger *slog.Logger) Option {
	return func(h *handler) {
		if logger == nil {
			h.log = slog.New(slog.DiscardHandler)
			return
		}
		h.log = usercode.Logger(logger, h.logCalls)
	}
}
