package events

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/onward-go/outbox/internal/usercode"
	"github.com/onward-go/outbox/persistence"
)

// DefaultName is the name of a dispatcher without [WithName].
const DefaultName = "default"

// DefaultMaxAttempts is the number of failures after which an event becomes a
// dead letter.
const DefaultMaxAttempts = 5

// Other defaults of a dispatcher.
const (
	DefaultConcurrency        = 8
	DefaultBatchSize          = 100
	DefaultLease              = 15 * time.Second
	DefaultHandlerTimeout     = time.Minute
	DefaultShutdownGrace      = 10 * time.Second
	DefaultWindowEvents       = 10_000
	DefaultWindowBytes        = 64 << 20
	DefaultSubscriptionExpiry = 7 * 24 * time.Hour
)

// Option configures a [Dispatcher].
type Option func(*Dispatcher)

// WithName names the dispatcher. One name is one cursor and one consumer of the
// outbox; several names consume it independently. 1 to 128 bytes.
func WithName(name string) Option {
	return func(d *Dispatcher) {
		d.name = name
		if problem := persistence.CheckText(name, persistence.MaxDispatcherBytes); problem != "" {
			d.refuse("dispatcher name %s", problem)
		}
	}
}

// WithMaxAttempts sets after how many failures of a handler an event becomes a
// dead letter; at least 1.
func WithMaxAttempts(n int) Option {
	return func(d *Dispatcher) {
		d.maxAttempts = n
		if n < 1 {
			d.refuse("max attempts is %d, it must be at least 1", n)
		}
	}
}

// WithConcurrency sets how many events are delivered at the same time; at least
// 1. Those of one aggregate are delivered one after the other all the same.
//
// A concurrency of 1 keeps the order of reading over all aggregates, and so lets
// a failing event hold back all later ones, until it is a dead letter.
//
// The default is [DefaultConcurrency]. It is no more than the database can do, in
// any case: one at a time where it has a single writer, and two less than the
// connections of the pool, which the dispatcher itself needs to read, to save and to
// renew its lease. The log warns where that is less than was asked for. A handler that
// takes another connection of the pool while its transaction is open needs one for each
// lane on top, or it waits for the others. A default, or a limit, that comes to one at a
// time lets no event hold back those of another aggregate.
func WithConcurrency(n int) Option {
	return func(d *Dispatcher) {
		d.concurrency = n
		if n < 1 {
			d.refuse("concurrency is %d, it must be at least 1", n)
		}
	}
}

// WithBatchSize sets how many events a handler of [Dispatcher.SubscribeBatch] gets
// at once, at most; at least 1. The default is [DefaultBatchSize].
func WithBatchSize(n int) Option {
	return func(d *Dispatcher) {
		d.batchSize = n
		if n < 1 {
			d.refuse("batch size is %d, it must be at least 1", n)
		}
	}
}

// shortestLease is one that can still be renewed in time, and shortestHandlerTimeout
// one in which a transaction can begin.
const (
	shortestLease          = 100 * time.Millisecond
	shortestHandlerTimeout = time.Millisecond
)

// WithLease sets for how long the lease is taken, by the database's clock; at
// least 100ms. It is renewed three times as often. That is how long it
// takes until another replica goes on in the place of one that has died.
func WithLease(duration time.Duration) Option {
	return func(d *Dispatcher) {
		d.lease = duration
		if duration < shortestLease {
			d.refuse("lease is %s, it must be at least %s", duration, shortestLease)
		}
	}
}

// WithBackoff sets how long Poll waits after a first failure, and at most. In
// between the wait doubles with each failure; up to half of it is random.
func WithBackoff(first, most time.Duration) Option {
	return func(d *Dispatcher) {
		d.backoff = backoff{first, most}
		if first <= 0 || most < first {
			d.refuse("back-off from %s to %s, it must be greater than 0 and rise", first, most)
		}
	}
}

// WithHandlerTimeout sets how long a handler may take, its transaction with it; at
// least 1ms. Then, or up to a 64th of that time later, its context is
// cancelled, and it has failed. A handler that does not heed its context keeps
// its aggregate's events waiting.
func WithHandlerTimeout(timeout time.Duration) Option {
	return func(d *Dispatcher) {
		d.handlerTimeout = timeout
		if timeout < shortestHandlerTimeout {
			d.refuse("handler timeout is %s, it must be at least %s", timeout, shortestHandlerTimeout)
		}
	}
}

// WithShutdownGrace sets how long handlers that run may go on when Poll is
// stopped; 0 or more.
func WithShutdownGrace(grace time.Duration) Option {
	return func(d *Dispatcher) {
		d.grace = grace
		if grace < 0 {
			d.refuse("shutdown grace is %s, it must not be negative", grace)
		}
	}
}

// WithWindow bounds what lies between the cursor and the last event that has
// been read: in events, and in bytes of payload that is not delivered yet; both
// at least 1. Within it events are delivered while others are in back-off, or
// while a producer that has published keeps its transaction open. When it is
// full, reading waits for the cursor.
func WithWindow(events, bytes int) Option {
	return func(d *Dispatcher) {
		d.windowEvents, d.windowBytes = events, bytes
		if events < 1 || bytes < 1 {
			d.refuse("window is %d events and %d bytes, both must be at least 1", events, bytes)
		}
	}
}

// WithSubscriptionExpiry sets after how long a handler that no replica has any
// more is forgotten; at least the lease. Until then its events are kept for it, and
// hold retention back. Each replica says that its handlers are there at least once an
// hour, and four times in that time, whether it works or stands by, and whatever the
// interval of Poll is.
func WithSubscriptionExpiry(expiry time.Duration) Option {
	return func(d *Dispatcher) {
		d.forgetAfter = expiry
		if expiry <= 0 {
			d.refuse("subscription expiry is %s, it must be greater than 0", expiry)
		}
	}
}

// WithStartNow makes a dispatcher that is new to the outbox begin with the
// events that are committed from now on. The default is the first event that
// the outbox holds. A dispatcher that has a cursor goes on from there. What is
// committed already and lies after the safe mark, beside a producer that is open,
// is settled as for a new handler: see [Dispatcher.Subscribe].
func WithStartNow() Option {
	return func(d *Dispatcher) {
		d.startNow = true
		d.start = func(ctx context.Context) (persistence.Cursor, error) {
			mark, err := d.firstMark(ctx)
			return persistence.Cursor{CreatedTime: mark}, err
		}
	}
}

// WithStartTime makes a dispatcher that is new to the outbox begin with the
// events stamped at or after the time, which is in the years 1 to 9999.
func WithStartTime(t time.Time) Option {
	return func(d *Dispatcher) {
		if year := t.UTC().Year(); year < 1 || year > 9999 {
			d.refuse("start time is in the year %d, it must be in the years 1 to 9999", year)
		}
		d.startNow = false
		d.start = func(context.Context) (persistence.Cursor, error) {
			return persistence.Cursor{CreatedTime: t.UTC().Truncate(time.Microsecond)}, nil
		}
	}
}

// WithLogger sets where the dispatcher logs. The default, and nil, discard. The
// logger is called as an [Observer] is: on a goroutine of its own, so that it can
// stop nothing.
func WithLogger(logger *slog.Logger) Option {
	return func(d *Dispatcher) {
		if logger == nil {
			d.log = slog.New(slog.DiscardHandler)
			return
		}
		d.log = usercode.Logger(logger, d.logCalls)
	}
}

// refuse remembers bad input for RunOnce and Poll to return, since the
// constructor returns one value.
func (d *Dispatcher) refuse(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.invalid = append(d.invalid, invalid(format, args...))
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", persistence.ErrInvalid, fmt.Sprintf(format, args...))
}
