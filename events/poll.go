package events

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/onward-go/outbox/internal/usercode"
	"github.com/onward-go/outbox/persistence"
)

// Poll delivers events until ctx is cancelled, and then returns nil. It blocks;
// the caller owns the goroutine.
//
// It holds the lease as long as it can. While another dispatcher of the name has
// it, Poll stands by, and takes over when the lease is released or expires. It
// looks for new events at least once in an interval, sooner when there were some
// a moment ago, and at once after [Dispatcher.Wake]; it reads batch events at a
// time, without a pause as long as there are more. While all lanes are busy and a
// batch waits, it does not hurry: what it found would only wait, too. A failing
// event is tried again after a back-off ([WithBackoff]), which delays nothing but
// the later events of its aggregate. Beside that it replays dead letters that have
// been requeued ([DeadLetters.Requeue]), one at a time.
//
// When ctx is cancelled, no handler is started any more. Those that run have a
// grace period to come to an end ([WithShutdownGrace]); then their contexts are
// cancelled, and Poll waits for them to return. It saves the cursor and releases
// the lease.
//
// OnError, if it is not nil, is called with what goes wrong; see
// [Dispatcher.RunOnce] for what errors there are. It is called as an [Observer] is:
// one call after the other, on a goroutine of its own, so that it can stop nothing.
// Poll itself returns an error, [persistence.ErrInvalid], only for options, subscriptions
// and arguments that are wrong.
func (d *Dispatcher) Poll(ctx context.Context, interval time.Duration, batch int, onError func(error)) error {
	err := errors.Join(d.check(), persistence.CheckLimit(batch), d.checkExpiry())
	if interval <= 0 {
		err = errors.Join(err, fmt.Errorf("%w: poll interval is %s, it must be greater than 0", persistence.ErrInvalid, interval))
	}
	if persistence.InTransaction(ctx) || ctx.Value(passing{d}) != nil {
		err = errors.Join(err, fmt.Errorf("%w: call Poll outside of it", persistence.ErrInTransaction))
	}
	if err != nil {
		return fmt.Errorf("dispatcher %q: %w", d.name, err)
	}
	p := poller{interval: interval, batch: min(batch, d.windowEvents), onError: onError, d: d, calls: d.calls("onError")}
	defer func() {
		p.calls.Drain(closeTimeout)
		d.drain()
	}()
	d.polling.Add(1)
	defer d.polling.Add(-1)
	if d.enter(ctx) != nil {
		return nil
	}
	defer d.leave()
	for ctx.Err() == nil {
		if t := p.stand(ctx); t != nil {
			p.hold(ctx, t)
		}
	}
	return nil
}

// hold works as long as ctx and the term last, and ends the term, however it is left.
func (p *poller) hold(ctx context.Context, t *term) {
	returned := false
	defer func() {
		if !returned {
			t.abandon()
		}
	}()
	p.serve(ctx, t)
	err := errors.Join(t.close(p.d.grace), t.lost())
	returned = true
	p.tell(ctx, err)
}

// Wake makes Poll look for events at once, or as soon as it could deliver what it
// found. It never blocks, and costs nothing when nobody polls. [WithNotify] calls
// it after commits of the same process.
func (d *Dispatcher) Wake() {
	d.wake.tell()
}

// poller is one call of Poll.
type poller struct {
	d        *Dispatcher
	interval time.Duration
	batch    int
	onError  func(error)
	calls    *usercode.Calls // of onError
	standing bool            // by, and has said so
	starving starving
}

// tell passes an error on.
func (p *poller) tell(ctx context.Context, err error) {
	if err == nil {
		return
	}
	err = usercode.Sound(err)
	p.d.log.LogAttrs(ctx, slog.LevelError, "outbox: pass failed", slog.String("dispatcher", p.d.name), slog.Any("error", err))
	p.pass(err)
}

func (p *poller) pass(err error) {
	if err != nil && p.onError != nil {
		err = fmt.Errorf("dispatcher %q: %w", p.d.name, usercode.Sound(err))
		p.calls.Add(func() { p.onError(err) })
	}
}

// stand tries to take the lease, and waits an interval if it cannot, unless it has to
// say before that its handlers are there.
func (p *poller) stand(ctx context.Context) *term {
	t, err := p.d.begin(ctx, context.WithoutCancel(ctx), true)
	if err == nil {
		p.standing, p.starving = false, starving{}
		return t
	}
	if usercode.Is(err, persistence.ErrLeaseHeld) {
		if !p.standing {
			p.d.log.LogAttrs(ctx, slog.LevelInfo, "outbox: standing by", slog.String("dispatcher", p.d.name), slog.Any("error", err))
		}
		p.standing = true
		p.starving.standBy(ctx, p.d, err)
	} else if ctx.Err() == nil {
		p.tell(ctx, err)
	}
	sleep(ctx, ctx, jittered(min(p.interval, p.d.upkeepEvery())))
	return nil
}

// serve reads and delivers until ctx or the term ends.
func (p *poller) serve(ctx context.Context, t *term) {
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	// What runs beside the reads is no more frequent than they are, so that a database
	// that sleeps while nobody asks can sleep for an interval.
	t.help(watching, "the audit", func(ctx context.Context) { t.watch(ctx, max(auditEvery, p.interval)) })
	t.help(watching, "the replay of a dead letter", func(ctx context.Context) { t.lookForRequeued(ctx, max(requeuedEvery, p.interval)) })
	shortest := max(p.interval/64, min(p.interval, time.Millisecond))
	for pause := shortest; ctx.Err() == nil && t.ctx.Err() == nil; {
		t.upkeep(ctx)
		t.lookForAbsent(ctx)
		t.fit(ctx)
		began := time.Now()
		n, more, err := t.cycle(ctx, p.batch)
		took := time.Since(began)
		switch {
		case err != nil:
			pause, more = p.interval, false
			if ctx.Err() == nil && t.ctx.Err() == nil {
				p.tell(ctx, err)
			}
		case n > 0:
			pause = max(shortest, 8*min(took, p.interval/8))
		default:
			pause = 2 * min(pause, p.interval/2)
		}
		p.wait(ctx, t, min(pause, p.d.upkeepEvery()), more)
	}
}

// wait waits for a reason to read again.
func (p *poller) wait(ctx context.Context, t *term, pause time.Duration, more bool) {
	pause = jittered(pause)
	if len(t.window.entries) > 0 || t.dirty() {
		pause = min(pause, t.untilDue()) // the cursor is to be moved
	}
	enough := t.enough(p.batch)
	if t.busy(t.lanes.load(), enough) {
		pause, more = max(pause, saveEvery), true
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	ready := func(now load) bool {
		return more && now.queued < enough && t.takesMore(now) || t.waitingOf(now)-t.unsaved >= p.batch ||
			t.isFull(now) && time.Since(t.marked) >= t.held
	}
	defer t.lanes.stopAwaiting() // ready looks at what the caller changes
	for {
		p.pass(t.reported())
		if t.lanes.await(ready) {
			return
		}
		select {
		case <-timer.C:
			return
		case <-p.d.wake:
			if !t.busy(t.lanes.load(), enough) {
				return
			}
			more = true
		case <-t.changed:
		case <-ctx.Done():
			return
		case <-t.ctx.Done():
			return
		}
	}
}

// jittered shortens a wait by up to a tenth, so that replicas do not march in
// step.
func jittered(wait time.Duration) time.Duration {
	return wait - rand.N(wait/10+1)
}
