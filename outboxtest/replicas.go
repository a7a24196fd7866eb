package outboxtest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/persistence"
)

var replicaRules = []rule{
	{"two dispatchers that race apply every event once", func(s *suite) { s.takeOver() }},
	{"a dispatcher whose lease somebody else holds does nothing", func(s *suite) {
		s.commit(record("a"))
		s.load(events.DefaultName)
		lease, err := s.Cursors.Acquire(s.ctx, events.DefaultName, "somebody", time.Hour)
		require.NoError(s, err)
		d := s.dispatcher()
		s.subscribe(d, "h", s.effect("h"))
		n, err := d.RunOnce(s.ctx, 10)
		require.ErrorIs(s, err, persistence.ErrLeaseHeld)
		require.Zero(s, n)
		s.wantState("h/a", "")
		require.NoError(s, s.Cursors.Release(s.ctx, lease))
		s.pass(d, 1)
		require.Empty(s, s.load(events.DefaultName).Lease.Owner, "it gives the lease back")
	}},
	{"a handler that a holder did not know gets what it has missed", func(s *suite) {
		before, after := s.dispatcher(), s.dispatcher()
		var order []string
		s.subscribe(before, "old", s.effect("old"))
		s.subscribe(after, "old", s.effect("old"))
		s.subscribe(after, "new", func(ctx context.Context, evt events.Event) error {
			order = append(order, evt.ID)
			return s.Put(ctx, "new/"+evt.ID, "applied")
		})
		require.NoError(s, after.Subscribe("test.Added", "new", s.effect("added")))
		s.commit(record("history"))
		s.pass(before, 1)
		// The new replica comes up, and finds the lease held.
		lease, err := s.Cursors.Acquire(s.ctx, events.DefaultName, "old replica", time.Hour)
		require.NoError(s, err)
		_, err = after.RunOnce(s.ctx, 1)
		require.ErrorIs(s, err, persistence.ErrLeaseHeld)
		require.NoError(s, s.Cursors.Release(s.ctx, lease))
		s.commit(numbered("e", 3)...)
		added := record("a")
		added.EventType, added.AggregateID = "test.Added", "other"
		s.commit(added)
		s.pass(before, 4)
		s.pass(after, 4)
		require.Equal(s, ids(numbered("e", 3)), order, "in order, and nothing from before it was there")
		s.wantState("added/a", "applied")
		s.pass(after, 0)
		// And back again, as in a rollback of the deploy.
		s.commit(record("f"))
		s.pass(before, 1)
		s.wantState("new/f", "")
		s.pass(after, 1)
		s.wantState("new/f", "applied")
		s.wantState("old/f", "applied")
	}},
}

// takeOver lets a second dispatcher take over while the first stands between
// marker and commit, and does not know that it has lost its lease.
func (s *suite) takeOver() {
	s.needsConcurrency()
	s.commit(numbered("e", 20)...)
	s.settled()
	var mu sync.Mutex
	effects := map[string]int{}
	apply := func(ctx context.Context, evt events.Event) error {
		if err := s.Put(ctx, "h/"+evt.ID, "applied"); err != nil {
			return err
		}
		return persistence.AfterCommit(ctx, func(context.Context) {
			mu.Lock()
			defer mu.Unlock()
			effects[evt.ID]++
		})
	}
	inHandler, goOn := make(chan struct{}), make(chan struct{})
	zombie := events.NewDispatcher(s.Outbox, &deafCursors{OutboxCursorStore: s.Cursors}, s.Transactor, s.Idempotency, events.WithLease(100*time.Millisecond))
	s.subscribe(zombie, "h", func(ctx context.Context, evt events.Event) error {
		if evt.ID == "e-0003" {
			close(inHandler)
			<-goOn
		}
		return apply(ctx, evt)
	})
	var entered sync.Once
	heir := s.dispatcherWith(entryStore{s.Idempotency, func(m persistence.Marker) {
		if m.Event.ID == "e-0003" {
			entered.Do(func() { close(goOn) })
		}
	}})
	s.subscribe(heir, "h", apply)

	result := make(chan error, 1)
	go func() {
		_, err := zombie.RunOnce(s.ctx, 100)
		result <- err
	}()
	select {
	case <-inHandler:
	case err := <-result:
		s.Fatalf("the first dispatcher has not entered the handler: %v", err)
	}
	n := s.untilFree(heir)
	require.Equal(s, 20, n)
	select {
	case <-goOn: // both had entered the delivery of that event
	default:
		s.Fatal("the second dispatcher has not entered the delivery")
	}
	require.ErrorIs(s, <-result, persistence.ErrLeaseLost)
	require.Len(s, effects, 20)
	for id, n := range effects {
		require.Equal(s, 1, n, id)
	}
}

// untilFree makes a pass as soon as the lease of somebody else expires.
func (s *suite) untilFree(d *events.Dispatcher) int {
	s.Helper()
	n, err := d.RunOnce(s.ctx, 100)
	for errors.Is(err, persistence.ErrLeaseHeld) {
		require.Zero(s, n)
		select {
		case <-time.After(5 * time.Millisecond):
		case <-s.ctx.Done():
			s.Fatal("the lease does not expire")
		}
		n, err = d.RunOnce(s.ctx, 100)
	}
	require.NoError(s, err)
	return n
}

// deafCursors makes a dispatcher believe that it renews its lease.
type deafCursors struct {
	persistence.OutboxCursorStore
	mu    sync.Mutex
	lease persistence.Lease
}

func (c *deafCursors) Acquire(ctx context.Context, dispatcher, owner string, duration time.Duration) (persistence.Lease, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lease.Owner != "" {
		return c.lease, nil
	}
	lease, err := c.OutboxCursorStore.Acquire(ctx, dispatcher, owner, duration)
	c.lease = lease
	return lease, err
}

// entryStore tells when a dispatcher is about to deliver an event.
type entryStore struct {
	persistence.IdempotencyStore
	enters func(persistence.Marker)
}

func (e entryStore) Record(ctx context.Context, markers ...persistence.Marker) ([]bool, error) {
	for _, m := range markers {
		e.enters(m)
	}
	return e.IdempotencyStore.Record(ctx, markers...)
}

func (e entryStore) RecordNew(ctx context.Context, marker persistence.Marker) error {
	e.enters(marker)
	return e.IdempotencyStore.RecordNew(ctx, marker)
}
