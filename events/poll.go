package events

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/onward-go/outbox/persistence"
)

// Poll makes passes of up to batch events until ctx is cancelled, and then
// returns nil. A full batch is followed by the next pass at once, anything
// else after the interval. It blocks; the caller owns the goroutine.
//
// OnError, if it is not nil, is called with the error of each pass that had
// one, on Poll's goroutine; see [Dispatcher.RunOnce] for what they are. Poll
// itself returns an error, [persistence.ErrInvalid], only for options,
// subscriptions and arguments that are wrong.
func (d *Dispatcher) Poll(ctx context.Context, interval time.Duration, batch int, onError func(error)) error {
	err := errors.Join(d.check(), persistence.CheckLimit(batch))
	if interval <= 0 {
		err = errors.Join(err, fmt.Errorf("%w: poll interval is %s, it must be greater than 0", persistence.ErrInvalid, interval))
	}
	if err != nil {
		return fmt.Errorf("dispatcher %q: %w", d.name, err)
	}
	timer := time.NewTimer(interval)
	defer timer.Stop()
	for ctx.Err() == nil {
		settled, err := d.RunOnce(ctx, batch)
		if err != nil && ctx.Err() == nil {
			d.log.LogAttrs(ctx, slog.LevelError, "outbox: pass failed", slog.String("dispatcher", d.name), slog.Any("error", err))
			if onError != nil {
				onError(err)
			}
		}
		if err == nil && settled == batch {
			continue
		}
		timer.Reset(interval)
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	return nil
}
