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
// many of the events that it read are settled, by itself or before; those that were
// settled before, or have no handler, do not count for the limit, and the pass reads
// on past them, also while the cursor waits before them. An event that a handler
// fails on lets the later ones of its aggregate wait for the next pass; with a
// concurrency of 1, all later ones.
//
// The pass reads and delivers one page after the other, and holds no more than
// the window at a time ([WithWindow]). It ends early where the window is full of
// what the cursor cannot pass yet.
//
// After them it replays dead letters that have been requeued
// ([DeadLetters.Requeue]), at most limit, too; they are not among the events
// that it counts.
//
// When ctx is cancelled, so is that of the handlers; what is settled is saved.
// Faults that are not an event's are remembered from one pass of the dispatcher to
// the next, so that nothing is tried for ever.
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

// once reads one page after the other, and each time waits until all that can be
// done is done.
func (t *term) once(ctx context.Context, limit int) (settled int, err error) {
	if err := t.auditOnce(ctx); err != nil {
		return 0, err
	}
	t.quiet() // what the audit has found is delivered by now
	for more, size := true, limit; more && err == nil; {
		more, err = t.turn(ctx, limit, &size)
	}
	now := t.lanes.load()
	settled = int(now.settled + t.instant)
	if err != nil {
		return settled, err
	}
	if ctx.Err() == nil {
		t.upkeep(ctx)
		err := t.replayRequeued(ctx, limit)
		return settled, errors.Join(err, t.catchUp(ctx, limit))
	}
	if t.waitingOf(now) < len(t.window.entries) {
		err = context.Cause(ctx)
	}
	return settled, err
}

// turn delivers one page of a pass, and reports whether there may be more to do.
// Size is how many new events it reads at most: more than can be delivered, where
// the last page had nothing to deliver.
func (t *term) turn(ctx context.Context, limit int, size *int) (more bool, err error) {
	now := t.lanes.load()
	left := leftOf(limit, now)
	if left <= 0 || t.lanes.single && now.lanes > 0 || t.stopping() {
		return false, nil
	}
	if !t.takesMore(now) {
		if err := t.catchUp(ctx, limit); err != nil || !t.takesMore(t.lanes.load()) {
			return false, err
		}
	}
	page, err := t.read(ctx, min(t.room(), *size), left)
	if err != nil {
		return false, err
	}
	if *size = left; page.busy == 0 {
		*size = min(2*max(page.fresh, left), unbounded/2)
	}
	t.quiet()
	if t.advance() > 0 {
		err = t.save(ctx)
	}
	return page.more, err
}

// leftOf returns how many events a pass may still try, once it is quiet. In each
// lane that is left one has been tried.
func leftOf(limit int, now load) int { return max(0, limit-int(now.settled)-now.lanes) }

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

func (t *term) catchUp(ctx context.Context, limit int) error {
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
		page, err := t.read(ctx, 0, leftOf(limit, t.lanes.load()))
		if err != nil {
			return err
		}
		t.quiet()
		t.reached(mark, page)
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
