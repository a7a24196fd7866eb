package events

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"unicode/utf8"

	"github.com/onward-go/outbox/persistence"
)

// ErrDeadLettered marks the error of an event that has become a dead letter
// for a handler: it is settled, and the cursor moves on.
var ErrDeadLettered = errors.New("dead-lettered")

// fail counts a failure of a handler, and makes the event a dead letter for it
// when it has failed often enough. It reports whether that settled the event
// for this handler.
func (d *Dispatcher) fail(ctx context.Context, lease persistence.Lease, r persistence.Record, s subscription, cause error) (settled bool, err error) {
	where := fmt.Sprintf("event %s (type %q, aggregate %s/%s), handler %q", r.ID, r.EventType, r.AggregateType, r.AggregateID, s.name)
	attempt, err := d.cursors.RecordFailure(ctx, lease, persistence.Failure{
		Event:   r.Cursor(),
		Handler: s.name,
		Error:   clean(fmt.Sprint(cause)), // which outlives an Error method that panics
	})
	if err != nil {
		return false, fmt.Errorf("%s: the failure could not be counted: %w: %w", where, err, cause)
	}
	log := d.log.With("dispatcher", d.name, "event_id", r.ID, "event_type", r.EventType,
		"aggregate_type", r.AggregateType, "aggregate_id", r.AggregateID, "handler", s.name,
		"attempts", attempt.Attempts, "max_attempts", d.maxAttempts, "error", cause)
	if attempt.Attempts < d.maxAttempts {
		log.LogAttrs(ctx, slog.LevelWarn, "outbox: handler failed")
		return false, fmt.Errorf("%s: attempt %d of %d failed: %w", where, attempt.Attempts, d.maxAttempts, cause)
	}
	buried, err := d.bury(ctx, lease, r, s, attempt)
	switch {
	case err != nil:
		return false, fmt.Errorf("%s: it has failed %d times and could not be dead-lettered: %w: %w", where, attempt.Attempts, err, cause)
	case !buried: // a racing dispatcher has applied it
		return true, nil
	}
	log.LogAttrs(ctx, slog.LevelError, "outbox: event dead-lettered")
	return true, fmt.Errorf("%s: %w after %d attempts: %w", where, ErrDeadLettered, attempt.Attempts, cause)
}

// bury writes the dead letter in one transaction with the marker that settles
// the event for the handler. It reports false if the marker existed already.
func (d *Dispatcher) bury(ctx context.Context, lease persistence.Lease, r persistence.Record, s subscription, attempt persistence.Attempt) (buried bool, err error) {
	err = d.tx.Atomically(ctx, func(ctx context.Context) error {
		recorded, err := d.idempotency.Record(ctx, s.marker(r))
		if err != nil || !recorded[0] {
			return err
		}
		buried = true
		return d.cursors.AddDeadLetter(ctx, lease, persistence.DeadLetter{
			Record:     r,
			Dispatcher: d.name,
			Handler:    s.name,
			Attempts:   attempt.Attempts,
			LastError:  attempt.LastError,
			State:      persistence.DeadLetterDead,
		})
	})
	return buried, err
}

// clean makes an error's text fit for every database: valid UTF-8, no NUL,
// bounded.
func clean(text string) string {
	text = strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
	if len(text) <= persistence.MaxErrorBytes {
		return text
	}
	end := persistence.MaxErrorBytes
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end]
}
