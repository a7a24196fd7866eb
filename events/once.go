package events

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/onward-go/outbox/internal/usercode"
	"github.com/onward-go/outbox/persistence"
)

// RunOnce makes one pass: it takes the lease, delivers the next events, at most
// limit, tries each failing one once, and gives the lease back. It returns how
// many of the events that it read are settled, by itself or before. An event
// that a handler fails on lets the later ones of its aggregate wait for the next
// pass; with a concurrency of 1, all later ones.
//
// After them it replays dead letters that have been requeued
// ([DeadLetters.Requeue]), at most limit, too; they are not among the events
// that it counts.
//
// When ctx is cancelled, so is that of the handlers; what is settled is saved.
//
// The error joins what handlers returned and what went wrong beside them:
//
//   - [persistence.ErrInvalid], before anything is read, for options,
//     subscriptions and limits.
//   - [persistence.ErrInTransaction] if ctx carries a transaction, or is that
//     of one of its own handlers: handlers have transactions of their own, and
//     none would see what that one wrote.
//   - [persistence.ErrLeaseHeld], with nothing done, if another dispatcher of
//     the name is at work, or [Dispatcher.Poll] of this one.
//   - [ErrDeadLettered] for an event that was settled as a dead letter.
//   - [persistence.ErrLeaseLost] if somebody has taken over, or moved the
//     cursor; the next pass reads it anew.
func (d *Dispatcher) RunOnce(ctx context.Context, limit int) (int, error) {
	if err := errors.Join(d.check(), persistence.CheckLimit(limit), d.checkExpiry()); err != nil {
		return 0, fmt.Errorf("dispatcher %q: %w", d.name, err)
	}
	if persistence.InTransaction(ctx) {
		return 0, fmt.Errorf("dispatcher %q: %w: call RunOnce after the transaction", d.name, persistence.ErrInTransaction)
	}
	if ctx.Value(passing{d}) != nil {
		return 0, fmt.Errorf("dispatcher %q: %w: RunOnce is called from a handler of its own", d.name, persistence.ErrInTransaction)
	}
	if d.polling.Load() > 0 {
		return 0, fmt.Errorf("dispatcher %q: %w: its own Poll is at work", d.name, persistence.ErrLeaseHeld)
	}
	if err := d.enter(ctx); err != nil {
		return 0, fmt.Errorf("dispatcher %q: %w", d.name, err)
	}
	defer d.drain()
	defer d.leave()
	t, err := d.begin(ctx, ctx, false)
	if err != nil {
		return 0, fmt.Errorf("dispatcher %q: %w", d.name, usercode.Sound(err))
	}
	settled, err := t.pass(ctx, limit)
	if err != nil {
		return settled, fmt.Errorf("dispatcher %q: %w", d.name, usercode.Sound(err))
	}
	return settled, nil
}

// pass reads and delivers once, and ends the term, however it is left.
func (t *term) pass(ctx context.Context, limit int) (settled int, err error) {
	returned := false
	defer func() {
		if !returned {
			t.abandon()
		}
	}()
	t.fit(ctx)
	settled, err = t.once(ctx, limit)
	err = errors.Join(err, t.close(0), t.reported(), t.lost())
	returned = true
	return settled, err
}

// passing marks the context of a handler, so that neither it, nor a hook of its
// transaction, waits for the pass that waits for it.
type passing struct{ d *Dispatcher }

// once reads once and waits until all that can be done is done.
func (t *term) once(ctx context.Context, limit int) (settled int, err error) {
	if err := t.auditOnce(ctx); err != nil {
		return 0, err
	}
	if _, _, err := t.read(ctx, limit); err != nil {
		return 0, err
	}
	t.quiet()
	settled = t.waiting()
	if ctx.Err() == nil {
		t.upkeep(ctx)
		err := t.replayRequeued(ctx, limit)
		return settled, errors.Join(err, t.catchUp(ctx))
	}
	if settled < len(t.window.entries) {
		err = context.Cause(ctx)
	}
	return settled, err
}

// quiet waits until nothing runs and nothing can.
func (t *term) quiet() {
	for !t.lanes.await(func(now load) bool { return now.still() && now.queued == 0 }) {
		<-t.changed
	}
}

// markPatience is how long a pass waits for the safe mark to pass what it has
// delivered, so that the next one need not read it again. A producer may hold
// the mark for longer, and MySQL's follows the clock in steps.
const (
	markPatience = 200 * time.Millisecond
	markPause    = 20 * time.Millisecond
)

func (t *term) catchUp(ctx context.Context) error {
	for deadline := time.Now().Add(markPatience); ; {
		t.advance()
		if t.waiting() == 0 || t.waiting() < len(t.window.entries) || !time.Now().Before(deadline) {
			return nil
		}
		if !sleep(ctx, t.ctx, markPause) {
			return nil
		}
		mark, err := t.d.store.SafeMark(ctx)
		if err != nil {
			return err
		}
		if _, _, err := t.read(ctx, 0); err != nil {
			return err
		}
		t.quiet()
		t.mark = mark.Time
	}
}

// auditOnce audits the last minutes, unless that was done a moment ago, for
// those who never poll.
func (t *term) auditOnce(ctx context.Context) error {
	t.tally.see(t.clock)
	_, isBehind := t.tally.setBack()
	due := time.Since(t.d.audited) >= auditEvery
	if !t.even.Load() || !due && !isBehind {
		return nil
	}
	if err := t.audit(ctx, auditRecent, due); err != nil {
		return err
	}
	if due {
		t.d.audited = time.Now()
	}
	return nil
}
