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
	zombie := events.NewDispatcher(s.Outbox, &deafCursors{OutboxCursorStore: s.Cursors}, s.Transactor, s.Idempotency, events.WithLease(20*time.Millisecond))
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
	n, err := heir.RunOnce(s.ctx, 100)
	for errors.Is(err, persistence.ErrLeaseHeld) { // it has yet to expire
		require.Zero(s, n)
		select {
		case <-time.After(5 * time.Millisecond):
		case <-s.ctx.Done():
			s.Fatal("the lease does not expire")
		}
		n, err = heir.RunOnce(s.ctx, 100)
	}
	require.NoError(s, err)
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
