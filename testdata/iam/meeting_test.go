package iam_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/onward-go/outbox/persistence"
)

// patience bounds the wait for a dispatcher that does not come, which fails
// the test.
const patience = 30 * time.Second

var errAlone = errors.New("the other dispatcher has not come")

// meeting is where two goroutines wait for each other, as often as they like.
type meeting chan struct{}

// meet returns when the other one has come, too.
func (m meeting) meet(ctx context.Context) error {
	select {
	case m <- struct{}{}:
		return nil
	case <-m:
		return nil
	case <-ctx.Done():
		return errAlone
	}
}

// meetingTransactor begins a transaction when both dispatchers want one.
type meetingTransactor struct {
	persistence.Transactor
	meeting meeting
	begins  func()
}

func (t meetingTransactor) Atomically(ctx context.Context, fn func(context.Context) error) error {
	t.begins()
	if err := t.meeting.meet(ctx); err != nil {
		return err
	}
	return t.Transactor.Atomically(ctx, fn)
}

// askers are the dispatchers that have asked for the marker of an event.
type askers struct {
	mu      sync.Mutex
	names   map[string][]string      // by event
	waiting map[string]chan struct{} // by event, closed when both have asked
}

func newAskers() *askers {
	return &askers{names: map[string][]string{}, waiting: map[string]chan struct{}{}}
}

func (a *askers) add(event, name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.names[event] = append(a.names[event], name)
	if len(a.names[event]) == 2 {
		close(a.both(event))
	}
}

// both needs the mutex.
func (a *askers) both(event string) chan struct{} {
	if a.waiting[event] == nil {
		a.waiting[event] = make(chan struct{})
	}
	return a.waiting[event]
}

func (a *askers) waitForBoth(ctx context.Context, event string) error {
	a.mu.Lock()
	both := a.both(event)
	a.mu.Unlock()
	select {
	case <-both:
		return nil
	case <-ctx.Done():
		return errAlone
	}
}

func (a *askers) of(event string) []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.names[event])
}

// askedStore notes who asks for which marker.
type askedStore struct {
	persistence.IdempotencyStore
	name  string
	asked *askers
}

func (s askedStore) Record(ctx context.Context, markers ...persistence.Marker) ([]bool, error) {
	for _, m := range markers {
		s.asked.add(m.Event.ID, s.name)
	}
	return s.IdempotencyStore.Record(ctx, markers...)
}

func (s askedStore) RecordNew(ctx context.Context, marker persistence.Marker) error {
	s.asked.add(marker.Event.ID, s.name)
	return s.IdempotencyStore.RecordNew(ctx, marker)
}

// expiredCursors hands out leases that have expired, once it is time to.
type expiredCursors struct {
	persistence.OutboxCursorStore
	ready chan struct{}
}

func (c expiredCursors) Acquire(ctx context.Context, dispatcher, owner string, _ time.Duration) (persistence.Lease, error) {
	select {
	case <-c.ready:
		return c.OutboxCursorStore.Acquire(ctx, dispatcher, owner, 0)
	case <-ctx.Done():
		return persistence.Lease{}, errAlone
	}
}
