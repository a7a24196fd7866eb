package events

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/onward-go/outbox/persistence"
)

// ErrLetterState says that a dead letter is not in a state in which it can be
// moved as asked. The message names the state.
var ErrLetterState = errors.New("dead letter in another state")

// DeadLetters are the dead letters of an outbox, of all dispatchers, for an
// operator who has no handlers at hand. Who has them replays with
// [Dispatcher.Replay]. It is safe for concurrent use.
//
//	          Requeue                    the dispatcher
//	dead ─────────────────► requeued ──────────────────► replayed
//	 │ ▲                     │    │                         ▲
//	 │ └─────────────────────┼────┘ the replay fails        │
//	 │        Discard        ▼                              │
//	 ├──────────────────► discarded                         │
//	 └──────────────────────────────────────────────────────┘
//	                   Dispatcher.Replay
type DeadLetters struct {
	store persistence.DeadLetterStore
	tx    persistence.Transactor
}

// NewDeadLetters returns the dead letters that store keeps, which changes in
// transactions of tx. Both have to be of one database. If one is nil, each call
// returns [persistence.ErrInvalid].
func NewDeadLetters(store persistence.DeadLetterStore, tx persistence.Transactor) *DeadLetters {
	return &DeadLetters{store, tx}
}

// List returns a page of letters, in the order of event, then handler. The next
// page is the one after the [persistence.DeadLetter.Marker] of the last letter.
func (l *DeadLetters) List(ctx context.Context, query persistence.DeadLetterQuery) ([]persistence.DeadLetter, error) {
	if err := l.check(); err != nil {
		return nil, err
	}
	return l.store.ListDeadLetters(ctx, query)
}

// Get returns a letter, or [persistence.ErrNotFound].
func (l *DeadLetters) Get(ctx context.Context, letter persistence.Marker) (persistence.DeadLetter, error) {
	if err := l.check(); err != nil {
		return persistence.DeadLetter{}, err
	}
	return l.store.GetDeadLetter(ctx, letter)
}

// Requeue has a dead letter replayed by a dispatcher, within five seconds, or Poll's
// interval if that is longer, while one is at work whose process has the handler,
// subscribed to the type of the event; until then it stays requeued. It need not be the
// dispatcher that has written the letter: a handler may have moved. If the replay fails, the letter is dead again, with one
// attempt more and the error.
//
// It is written in the transaction that ctx carries, if any. The error is
// [persistence.ErrNotFound] if there is no such letter, and [ErrLetterState]
// unless it is dead.
func (l *DeadLetters) Requeue(ctx context.Context, letter persistence.Marker) error {
	return l.move(ctx, letter, persistence.DeadLetterRequeued, persistence.DeadLetterDead)
}

// Discard settles a dead letter that is not to be applied. A requeued one can be
// discarded, too, until its replay begins.
//
// It is written in the transaction that ctx carries, if any. The error is
// [persistence.ErrNotFound] if there is no such letter, and [ErrLetterState] if
// it has been replayed or discarded.
func (l *DeadLetters) Discard(ctx context.Context, letter persistence.Marker) error {
	return l.move(ctx, letter, persistence.DeadLetterDiscarded, persistence.DeadLetterDead, persistence.DeadLetterRequeued)
}

// purgeBatch is how many letters one statement purges.
const purgeBatch = 500

// Purge deletes letters that were written before the time and have been replayed
// or discarded, in small transactions, and returns how many, also when there is
// an error.
func (l *DeadLetters) Purge(ctx context.Context, before time.Time) (int, error) {
	if err := l.check(); err != nil {
		return 0, err
	}
	for purged := 0; ; {
		n, err := l.store.PurgeDeadLetters(ctx, before, purgeBatch)
		if purged += n; err != nil || n < purgeBatch {
			return purged, err
		}
	}
}

// move moves a letter that is in one of the states.
func (l *DeadLetters) move(ctx context.Context, letter persistence.Marker, to persistence.DeadLetterState, from ...persistence.DeadLetterState) error {
	err := l.check()
	if err != nil {
		return err
	}
	for _, state := range from {
		err = moveLetter(ctx, l.tx, l.store, persistence.DeadLetterMove{Letter: letter, From: state, To: to})
		if !errors.Is(err, persistence.ErrNotFound) {
			break
		}
	}
	if err != nil {
		err = fmt.Errorf("dead letter of event %s, handler %q, to %s: %w", letter.Event, letter.Handler, to, explain(ctx, l.store, letter, err))
	}
	return err
}

func (l *DeadLetters) check() error {
	if l.store == nil || l.tx == nil {
		return invalid("the dead letter store or the transactor is nil")
	}
	return nil
}

func moveLetter(ctx context.Context, tx persistence.Transactor, store persistence.DeadLetterStore, move persistence.DeadLetterMove) error {
	return tx.Atomically(ctx, func(ctx context.Context) error { return store.MoveDeadLetter(ctx, move) })
}

// explain tells a letter that is not there from one in another state, also when
// ctx has ended meanwhile.
func explain(ctx context.Context, store persistence.DeadLetterStore, letter persistence.Marker, err error) error {
	if !errors.Is(err, persistence.ErrNotFound) {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	l, getErr := store.GetDeadLetter(ctx, letter)
	switch {
	case getErr == nil:
		return inState(l.State)
	case errors.Is(getErr, persistence.ErrNotFound):
		return err
	}
	return fmt.Errorf("%w, or in another state, which could not be read: %w", err, getErr)
}

func inState(state persistence.DeadLetterState) error {
	return fmt.Errorf("%w: it is %s", ErrLetterState, state)
}
