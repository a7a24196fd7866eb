package events

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/onward-go/outbox/persistence"
)

const (
	// requeuedEvery is how often the holder of the lease looks at most for letters
	// that have been requeued, and requeuedPage how many it looks at.
	requeuedEvery = 5 * time.Second
	requeuedPage  = 100
)

// errReplayCut is what a requeued letter says before its handler runs, since the
// process may end in it: then the letter is not requeued any more, so that it
// ends no other process.
var errReplayCut = errors.New("a replay has not come to an end: it still runs, or its process has ended")

// requeued is what a dispatcher remembers of the letters that were requeued.
type requeued struct {
	// faults counts, by letter, those in a row that were not the event's.
	faults map[persistence.Marker]int
}

// lookForRequeued replays requeued letters until ctx ends.
func (t *term) lookForRequeued(ctx context.Context, every time.Duration) {
	for wait := time.Duration(0); sleep(ctx, t.ctx, wait); {
		wait = every
		if err := t.replayRequeued(ctx, math.MaxInt); err != nil && ctx.Err() == nil {
			t.d.log.LogAttrs(ctx, slog.LevelWarn, "outbox: requeued letters could not be read", slog.String("dispatcher", t.d.name), slog.Any("error", err))
		}
	}
}

// replayRequeued replays requeued letters whose handlers are here, each once and at
// most limit, whichever dispatcher has written them: a handler may have moved. Mostly
// there are few, which one query returns. Where there are many, it asks for those of
// each handler, a page at a time in turn, so that neither letters of handlers that are
// elsewhere nor those of a single one are waited for.
func (t *term) replayRequeued(ctx context.Context, limit int) error {
	all := persistence.DeadLetterQuery{State: persistence.DeadLetterRequeued, WithoutPayload: true, Limit: requeuedPage}
	letters, err := t.d.cursors.ListDeadLetters(ctx, all)
	if err != nil {
		return err
	}
	if len(letters) < requeuedPage {
		t.replayAll(ctx, letters, limit)
		return nil
	}
	var queries []persistence.DeadLetterQuery
	for _, s := range t.d.subscriptions() {
		query := all
		query.EventType, query.Handler = s.eventType, s.name
		queries = append(queries, query)
	}
	for len(queries) > 0 {
		var left []persistence.DeadLetterQuery
		for _, query := range queries {
			letters, err := t.d.cursors.ListDeadLetters(ctx, query)
			if err != nil {
				return err
			}
			replayed := t.replayAll(ctx, letters, limit)
			if limit -= replayed; limit <= 0 || replayed < len(letters) {
				return nil
			}
			if len(letters) == requeuedPage {
				query.After = letters[requeuedPage-1].Marker()
				left = append(left, query)
			}
		}
		queries = left
	}
	return nil
}

// replayAll replays those letters whose handlers are here, at most limit, and returns
// how many it has tried. It stops when ctx or the term ends.
func (t *term) replayAll(ctx context.Context, letters []persistence.DeadLetter, limit int) (tried int) {
	for _, l := range letters {
		s, found := t.d.subscription(l)
		if !found {
			continue
		}
		if tried == limit || ctx.Err() != nil || !t.enterReplay() {
			return tried
		}
		tried++
		if err := t.replayEntered(s, l.Marker()); err != nil {
			t.report(fmt.Errorf("dead letter of event %s, handler %q: %w", l.Record.Cursor(), l.Handler, err))
		}
	}
	return tried
}

// enterReplay reports whether a handler may be started. Unless it reports false,
// the end of the term waits for leaveReplay.
func (t *term) enterReplay() bool {
	t.replays.Store(true) // before it looks, since the end of the term looks later
	if t.stopping() {
		t.leaveReplay()
		return false
	}
	return true
}

func (t *term) replayEntered(s subscription, letter persistence.Marker) error {
	defer t.leaveReplay()
	return t.replayLetter(s, letter)
}

func (t *term) leaveReplay() {
	t.replays.Store(false)
	t.changed.tell()
}

// replayLetter replays a requeued letter. The try is counted before it, in a
// transaction of its own, and the letter is dead again: if the process ends in
// the handler, nobody replays it until an operator has looked at it.
func (t *term) replayLetter(s subscription, letter persistence.Marker) error {
	d := t.d
	l, err := d.cursors.GetDeadLetter(t.ctx, letter)
	if err != nil {
		return ignoreNotFound(err)
	}
	began := persistence.DeadLetterMove{
		Letter: letter, From: persistence.DeadLetterRequeued, To: persistence.DeadLetterDead, Attempts: 1, LastError: errReplayCut.Error(),
	}
	if err := moveLetter(t.ctx, d.tx, d.cursors, began); err != nil {
		return ignoreNotFound(err) // somebody else was faster
	}
	uncounted := persistence.DeadLetterMove{Letter: letter, From: persistence.DeadLetterDead, Attempts: -1, LastError: l.LastError}
	start := d.now()
	entered, err := d.applyLetter(t.ctx, s, l, uncounted)
	if err == nil {
		d.tellOfLetter(ofReplayed, &l, start, nil)
		delete(d.requeued.faults, letter.Key())
		d.log.LogAttrs(t.ctx, slog.LevelInfo, "outbox: dead letter replayed", d.aboutLetter(l)...)
		return nil
	}
	if !entered && errors.Is(err, persistence.ErrNotFound) {
		return nil // an operator has replayed or discarded it in between
	}
	isOver, level := t.ctx.Err() != nil, slog.LevelWarn
	if isOver || t.mayTryAgain(letter, entered, err) {
		uncounted.To = persistence.DeadLetterRequeued
		err = errors.Join(err, t.note(uncounted))
	} else {
		level = slog.LevelError // it waits for an operator again
		l.Attempts++
		failure := persistence.DeadLetterMove{Letter: letter, From: persistence.DeadLetterDead, To: persistence.DeadLetterDead, LastError: clean(err.Error())}
		err = errors.Join(err, t.note(failure))
	}
	if !isOver {
		d.tellOfLetter(ofReplayFailed, &l, start, err)
		d.log.LogAttrs(t.ctx, level, "outbox: replay failed", append(d.aboutLetter(l), slog.Any("error", err))...)
	}
	return fmt.Errorf("the replay failed: %w", err)
}

// mayTryAgain reports whether a letter stays requeued after an error that is not
// the event's fault, which it may for so many times.
func (t *term) mayTryAgain(letter persistence.Marker, entered bool, err error) bool {
	faults, key := &t.d.requeued.faults, letter.Key()
	if entered && !t.d.isFault(err) || (*faults)[key]+1 >= faultsPerAttempt {
		delete(*faults, key)
		return false
	}
	if *faults == nil {
		*faults = map[persistence.Marker]int{}
	}
	(*faults)[key]++
	return true
}

// note writes what has become of a replay, also when the term is over: a letter
// needs no lease.
func (t *term) note(move persistence.DeadLetterMove) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.ctx), closeTimeout)
	defer cancel()
	if err := moveLetter(ctx, t.d.tx, t.d.cursors, move); ignoreNotFound(err) != nil {
		return fmt.Errorf("what became of it could not be noted: %w", err)
	}
	return nil
}

func ignoreNotFound(err error) error {
	if errors.Is(err, persistence.ErrNotFound) {
		return nil
	}
	return err
}
