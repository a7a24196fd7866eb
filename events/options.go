package events

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/onward-go/outbox/persistence"
)

// DefaultName is the name of a dispatcher without [WithName].
const DefaultName = "default"

// DefaultMaxAttempts is the number of failures after which an event becomes a
// dead letter.
const DefaultMaxAttempts = 5

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

// WithStartNow makes a dispatcher that is new to the outbox begin with the
// events that are committed from now on. The default is the first event that
// the outbox holds. A dispatcher that has a cursor goes on from there.
func WithStartNow() Option {
	return func(d *Dispatcher) {
		d.start = func(ctx context.Context) (persistence.Cursor, error) {
			mark, err := d.store.SafeMark(ctx)
			return persistence.Cursor{CreatedTime: mark.Time}, err
		}
	}
}

// WithStartTime makes a dispatcher that is new to the outbox begin with the
// events stamped at or after the time.
func WithStartTime(t time.Time) Option {
	return func(d *Dispatcher) {
		d.start = func(context.Context) (persistence.Cursor, error) {
			return persistence.Cursor{CreatedTime: t.UTC().Truncate(time.Microsecond)}, nil
		}
	}
}

// WithLogger sets where the dispatcher logs. The default, and nil, discard.
func WithLogger(logger *slog.Logger) Option {
	return func(d *Dispatcher) {
		if logger == nil {
			logger = slog.New(slog.DiscardHandler)
		}
		d.log = logger
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
