package events

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/onward-go/outbox/internal/usercode"
	"github.com/onward-go/outbox/persistence"
)

// Replay applies the subscribed handler to the event of a dead letter, once, in
// a transaction of its own. In it the letter is noted as replayed first, so that
// of any number of replays that race one has an effect. It needs neither the
// event's row nor its marker, which retention may have dropped long ago, nor the
// lease: it may run in any process that has the handler, while a dispatcher is at
// work. A replay keeps no order.
//
// The handler gets the event as it was and a context like that of a delivery.
// What it panics with is an error. What a function that it gave to
// [persistence.AfterCommit] panics with is logged: the letter is replayed by then.
//
// If it fails, the letter waits for an operator, with one attempt more and the
// error, which Replay returns. What is not the event's fault, such as a deadlock,
// and the end of ctx change nothing in the letter. After a connection that was
// lost during the commit the letter says whether it was replayed.
//
//   - [persistence.ErrInTransaction] if ctx carries a transaction: the handler
//     has one of its own.
//   - [persistence.ErrNotFound] if there is no such letter.
//   - [ErrLetterState] if it has been replayed or discarded, also by somebody
//     else at the same moment.
//   - [persistence.ErrInvalid] if its handler is not subscribed here to the type of
//     its event. Which dispatcher has written it does not matter: a handler may
//     have moved to another one.
func (d *Dispatcher) Replay(ctx context.Context, letter persistence.Marker) error {
	defer d.drain()
	if err := d.replay(ctx, letter); err != nil {
		return fmt.Errorf("dispatcher %q: replay the dead letter of event %s, handler %q: %w", d.name, letter.Event, letter.Handler, err)
	}
	return nil
}

func (d *Dispatcher) replay(ctx context.Context, letter persistence.Marker) error {
	if err := d.check(); err != nil {
		return err
	}
	if persistence.InTransaction(ctx) {
		return fmt.Errorf("%w: call Replay after the transaction", persistence.ErrInTransaction)
	}
	l, err := d.cursors.GetDeadLetter(ctx, letter)
	if err != nil {
		return err
	}
	s, found := d.subscription(l)
	if !found {
		return invalid("the handler is not subscribed to %q here", l.Record.EventType)
	}
	if l.State != persistence.DeadLetterDead && l.State != persistence.DeadLetterRequeued {
		return inState(l.State)
	}
	began := d.now()
	entered, err := d.applyLetter(ctx, s, l, persistence.DeadLetterMove{From: l.State})
	switch {
	case err == nil:
		d.tellOfLetter(ofReplayed, &l, began, nil)
		d.log.LogAttrs(ctx, slog.LevelInfo, "outbox: dead letter replayed", d.aboutLetter(l)...)
		return nil
	case !entered:
		return explain(ctx, d.cursors, letter, err)
	}
	d.tellOfLetter(ofReplayFailed, &l, began, err)
	d.log.LogAttrs(ctx, slog.LevelWarn, "outbox: replay failed", append(d.aboutLetter(l), slog.Any("error", err))...)
	if ctx.Err() != nil || d.isFault(err) {
		return err
	}
	failure := persistence.DeadLetterMove{Letter: letter, From: l.State, To: persistence.DeadLetterDead, Attempts: 1, LastError: clean(err.Error())}
	if moveErr := moveLetter(ctx, d.tx, d.cursors, failure); moveErr != nil && !errors.Is(moveErr, persistence.ErrNotFound) {
		err = fmt.Errorf("%w; the failure could not be noted: %w", err, moveErr)
	}
	return err
}

// applyLetter runs a handler in a transaction in which the letter is moved to
// the replayed ones first. It reports whether the handler was entered.
func (d *Dispatcher) applyLetter(ctx context.Context, s subscription, l persistence.DeadLetter, move persistence.DeadLetterMove) (entered bool, err error) {
	move.Letter, move.To = l.Marker(), persistence.DeadLetterReplayed
	ctx, cancel := context.WithTimeoutCause(ctx, d.handlerTimeout, errHandlerTimeout)
	defer cancel()
	entered, err = d.run(ctx, d.tx.Atomically, apart, l.Record, s.handler, func(ctx context.Context) error {
		return d.cursors.MoveDeadLetter(ctx, move)
	})
	if late, ok := err.(*afterHandler); ok {
		return d.lateReplay(ctx, l, late)
	}
	return entered, err
}

// lateReplay looks whether the transaction of a replay has committed: then the letter
// is replayed.
func (d *Dispatcher) lateReplay(ctx context.Context, l persistence.DeadLetter, late *afterHandler) (entered bool, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	now, err := d.cursors.GetDeadLetter(ctx, l.Marker())
	switch {
	case err != nil:
		return true, fmt.Errorf("whether it was replayed could not be read: %w: %w", usercode.Sound(err), late.error)
	case now.State != persistence.DeadLetterReplayed:
		return true, late.error
	}
	d.log.LogAttrs(ctx, slog.LevelError, "outbox: function of AfterCommit failed", slog.String("dispatcher", d.name), slog.Any("error", late.error))
	return true, nil
}

// subscription returns the one to which a letter belongs.
func (d *Dispatcher) subscription(l persistence.DeadLetter) (subscription, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	subscriptions := d.handlers[l.Record.EventType]
	i := slices.IndexFunc(subscriptions, func(s subscription) bool { return s.name == l.Handler })
	if i < 0 {
		return subscription{}, false
	}
	return subscriptions[i], true
}

// aboutLetter returns the attributes of what is logged about a replay.
func (d *Dispatcher) aboutLetter(l persistence.DeadLetter) []slog.Attr {
	return d.aboutHandler(l.Record, l.Handler, l.Attempts)
}
