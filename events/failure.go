package events

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/onward-go/outbox/internal/usercode"
	"github.com/onward-go/outbox/persistence"
)

// ErrDeadLettered marks the error of an event that has become a dead letter
// for a handler: it is settled, and the cursor moves on.
var ErrDeadLettered = errors.New("dead-lettered")

// Permanent marks a handler's error as one that no further try can mend: the
// event becomes a dead letter for the handler at once. Nil stays nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanent{err}
}

type permanent struct{ error }

func (p *permanent) Unwrap() error { return p.error }

// faultsPerAttempt is how many faults in a row that are not the event's count
// as one attempt, so that nothing is tried for ever.
const faultsPerAttempt = 10

// mostFaultBackoff bounds the wait after such a fault: when the database is back,
// nobody should have to wait for long.
const mostFaultBackoff = 10 * time.Second

// fail decides what a failed try means. It reports whether it settled the
// delivery.
func (t *term) fail(r persistence.Record, dl *delivery, entered bool, cause error) (settled bool) {
	if !entered {
		t.check(cause)
	}
	if t.ctx.Err() != nil { // the dispatcher is being stopped, or has lost its lease
		t.takeBack(dl)
		return t.postpone(r, dl, cause)
	}
	if _, ok := errors.AsType[*permanent](cause); ok && entered {
		if !dl.counted {
			dl.failures++
		}
		t.d.tellOf(ofFailed, &r, dl, cause)
		return t.giveUp(r, dl, cause)
	}
	if !entered || t.d.isFault(cause) {
		if dl.faults++; dl.faults%faultsPerAttempt != 0 {
			return t.postpone(r, dl, cause)
		}
	}
	if err := t.record(dl, cause, t.d.backoff.after(dl.failures+1)); err != nil {
		return t.postpone(r, dl, fmt.Errorf("the failure could not be counted: %w: %w", err, cause))
	}
	dl.counted = false
	t.d.tellOf(ofFailed, &r, dl, cause)
	if dl.failures >= t.d.maxAttempts {
		return t.giveUp(r, dl, cause)
	}
	t.d.log.LogAttrs(t.ctx, slog.LevelWarn, "outbox: handler failed", t.d.about(r, dl, cause)...)
	t.report(fmt.Errorf("%s: attempt %d of %d failed: %w", where(r, dl), dl.failures, t.d.maxAttempts, cause))
	return false
}

// takeBack uncounts a try that was counted before it, since the process has not
// ended. Whoever has lost the lease cannot: the try stays counted.
func (t *term) takeBack(dl *delivery) {
	if !dl.counted || t.lost() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.ctx), closeTimeout)
	defer cancel()
	_, err := t.d.cursors.RecordFailure(ctx, t.lease, persistence.Failure{
		Event: dl.marker.Event, Handler: dl.name, Error: dl.lastError, TakeBack: true,
	})
	if err != nil {
		t.report(fmt.Errorf("the try that was cut off stays counted: %w", usercode.Sound(err)))
		return
	}
	dl.counted = false
}

// record counts a failure, which is tried again after the wait.
func (t *term) record(dl *delivery, cause error, wait time.Duration) error {
	attempt, err := t.d.cursors.RecordFailure(t.ctx, t.lease, persistence.Failure{
		Event:      dl.marker.Event,
		Handler:    dl.name,
		Error:      clean(cause.Error()),
		RetryAfter: wait,
		Counted:    dl.counted,
	})
	if err != nil {
		t.check(err)
		return usercode.Sound(err)
	}
	dl.recorded, dl.failures, dl.lastError, dl.due = true, attempt.Attempts, attempt.LastError, time.Now().Add(wait)
	return nil
}

// postpone tries a delivery again later, without spending an attempt.
func (t *term) postpone(r persistence.Record, dl *delivery, cause error) (settled bool) {
	dl.due = time.Now().Add(min(mostFaultBackoff, t.d.backoff.after(max(1, dl.faults))))
	if t.ctx.Err() == nil {
		t.d.log.LogAttrs(t.ctx, slog.LevelWarn, "outbox: delivery postponed", t.d.about(r, dl, cause)...)
		t.d.tellOf(ofPostponed, &r, dl, cause)
	}
	t.report(fmt.Errorf("%s: %w", where(r, dl), cause))
	return false
}

// giveUp makes the event a dead letter for the handler.
func (t *term) giveUp(r persistence.Record, dl *delivery, cause error) (settled bool) {
	dl.lastError = clean(cause.Error())
	buried, err := t.bury(r, dl)
	if err != nil {
		t.check(err)
		dl.exhausted = true
		dl.faults++
		return t.postpone(r, dl, fmt.Errorf("it has failed %d times and could not be dead-lettered: %w: %w", dl.failures, err, cause))
	}
	t.forget(dl)
	if buried { // otherwise somebody else has applied it
		t.d.log.LogAttrs(t.ctx, slog.LevelError, "outbox: event dead-lettered", t.d.about(r, dl, cause)...)
		t.d.tellOf(ofDeadLettered, &r, dl, cause)
		t.report(fmt.Errorf("%s: %w at attempt %d: %w", where(r, dl), ErrDeadLettered, dl.failures, cause))
	}
	return true
}

// bury writes the dead letter in one transaction with the marker that settles
// the event for the handler. It reports false if the marker existed already.
func (t *term) bury(r persistence.Record, dl *delivery) (buried bool, err error) {
	// The deadline lets the server end the transaction of a paused process.
	// It is that of a handler, unless that is too short to write anything.
	ctx, cancel := context.WithTimeout(t.ctx, max(t.d.handlerTimeout, closeTimeout))
	defer cancel()
	err = t.d.tx.Atomically(ctx, func(ctx context.Context) error {
		recorded, err := t.d.idempotency.Record(ctx, dl.marker)
		if err != nil || !recorded[0] {
			return err
		}
		buried = true
		return t.d.cursors.AddDeadLetter(ctx, t.lease, persistence.DeadLetter{
			Record:     r,
			Dispatcher: t.d.name,
			Handler:    dl.name,
			Attempts:   dl.failures,
			LastError:  dl.lastError,
			State:      persistence.DeadLetterDead,
		})
	})
	return buried, usercode.Sound(err)
}

func where(r persistence.Record, dl *delivery) string {
	return fmt.Sprintf("event %s (type %q, aggregate %s/%s), handler %q", r.ID, r.EventType, r.AggregateType, r.AggregateID, dl.name)
}

// about returns the attributes of what is logged about a delivery.
func (d *Dispatcher) about(r persistence.Record, dl *delivery, cause error) []slog.Attr {
	return append(d.aboutHandler(r, dl.name, dl.failures), slog.Int("max_attempts", d.maxAttempts), slog.Any("error", cause))
}

// aboutHandler returns those of a handler and its event.
func (d *Dispatcher) aboutHandler(r persistence.Record, handler string, attempts int) []slog.Attr {
	return []slog.Attr{
		slog.String("dispatcher", d.name), slog.String("event_id", r.ID), slog.String("event_type", r.EventType),
		slog.String("aggregate_type", r.AggregateType), slog.String("aggregate_id", r.AggregateID), slog.String("handler", handler),
		slog.Int("attempts", attempts),
	}
}

// isFault reports whether a handler's error is not the event's fault. What a store's
// transactor has returned says so itself, since whoever wraps it may hide the judge.
func (d *Dispatcher) isFault(err error) bool {
	_, isPermanent := errors.AsType[*permanent](err)
	if isPermanent || errors.Is(err, errHandlerTimeout) {
		return false
	}
	if errors.Is(err, persistence.ErrTransient) {
		return true
	}
	judge, ok := d.tx.(persistence.FaultJudge)
	if !ok {
		return false
	}
	isTransient, judgeErr := usercode.Ask(func() bool { return judge.IsTransient(err) })
	if judgeErr != nil {
		d.log.LogAttrs(context.Background(), slog.LevelError, "outbox: transactor cannot judge an error", slog.String("dispatcher", d.name), slog.Any("error", judgeErr))
	}
	return isTransient
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
