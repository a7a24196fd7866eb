package eventstest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/persistence"
)

// Recorder notes the events that it handles. An event counts once the
// transaction that it was handled in has committed, so what is rolled back and
// tried again counts once; [Recorder.Tries] counts each. The zero value is ready.
// It is safe for concurrent use.
type Recorder struct {
	mu       sync.Mutex
	tries    int
	failures []error
	handled  []events.Event
}

// Handle is an [events.Handler] that does nothing but note the event.
func (r *Recorder) Handle(ctx context.Context, evt events.Event) error {
	return r.HandleBatch(ctx, []events.Event{evt})
}

// HandleBatch is an [events.BatchHandler] that does nothing but note the events.
func (r *Recorder) HandleBatch(ctx context.Context, evts []events.Event) error {
	if err := r.try(); err != nil {
		return err
	}
	return r.note(ctx, evts...)
}

// Around is an [events.Middleware]: it notes the events that the handler next
// has handled without an error.
func (r *Recorder) Around(next events.Handler) events.Handler {
	return func(ctx context.Context, evt events.Event) error {
		if err := r.try(); err != nil {
			return err
		}
		if err := next(ctx, evt); err != nil {
			return err
		}
		return r.note(ctx, evt)
	}
}

// FailWith makes the next calls fail, one with each error, before anything is
// done. A nil error lets a call pass.
func (r *Recorder) FailWith(errs ...error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = append(r.failures, errs...)
}

// Tries returns how often a handler was called.
func (r *Recorder) Tries() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.tries
}

// Events returns what has been handled and committed, in the order of commits.
func (r *Recorder) Events() []events.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.handled)
}

// Want fails the test unless exactly these events have been handled, in this
// order. An empty field of a wanted event matches anything.
func (r *Recorder) Want(t testing.TB, want ...events.Event) {
	t.Helper()
	Want(t, r.Events(), want...)
}

func (r *Recorder) try() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tries++
	if len(r.failures) == 0 {
		return nil
	}
	err := r.failures[0]
	r.failures = r.failures[1:]
	return err
}

// note waits for the commit, if there is a transaction whose commit can be seen.
func (r *Recorder) note(ctx context.Context, evts ...events.Event) error {
	add := func(context.Context) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.handled = append(r.handled, evts...)
	}
	err := persistence.AfterCommit(ctx, add)
	if errors.Is(err, persistence.ErrCommitNotObserved) || errors.Is(err, persistence.ErrNoTransaction) && !persistence.InTransaction(ctx) {
		add(ctx)
		return nil
	}
	return err
}
