package memstore

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/onward-go/outbox/persistence"
)

// sidecar is what the store remembers for one dispatcher.
type sidecar struct {
	lease       persistence.Lease
	cursor      persistence.Cursor
	count       int64 // of the cursor's bucket
	offsets     persistence.Offsets
	countedFrom time.Time
	attempts    map[persistence.Marker]persistence.Attempt
	counts      map[int64]persistence.Bucket // by the bucket's beginning, in microseconds
}

// fenced returns the dispatcher's sidecar if the lease is still good.
func (s *Store) fenced(lease persistence.Lease) (*sidecar, error) {
	c, ok := s.sidecars[lease.Dispatcher]
	if !ok || c.lease.Token != lease.Token || c.lease.Owner != lease.Owner {
		return nil, fmt.Errorf("memstore: dispatcher %q, token %d: %w", lease.Dispatcher, lease.Token, persistence.ErrLeaseLost)
	}
	return c, nil
}

func (s *Store) existing(dispatcher string) (*sidecar, error) {
	c, ok := s.sidecars[dispatcher]
	if !ok {
		return nil, fmt.Errorf("memstore: dispatcher %q: %w", dispatcher, persistence.ErrNotFound)
	}
	return c, nil
}

func (c *sidecar) state() persistence.State {
	return persistence.State{Lease: c.lease, Cursor: c.cursor, Count: c.count, Offsets: c.offsets, CountedFrom: c.countedFrom}
}

// failing returns the deliveries that have failed and are not settled, in order.
func (c *sidecar) failing() []persistence.Attempt {
	attempts := slices.Collect(maps.Values(c.attempts))
	slices.SortFunc(attempts, func(a, b persistence.Attempt) int {
		return compareMarkers(persistence.Marker{Event: a.Event, Handler: a.Handler}, persistence.Marker{Event: b.Event, Handler: b.Handler})
	})
	return attempts
}

// Create implements [persistence.OutboxCursorStore].
func (s *Store) Create(ctx context.Context, dispatcher string, start persistence.Cursor) error {
	if err := persistence.CheckDispatcher(dispatcher, start); err != nil {
		return err
	}
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	if _, exists := s.sidecars[dispatcher]; !exists {
		s.sidecars[dispatcher] = &sidecar{
			lease:       persistence.Lease{Dispatcher: dispatcher},
			cursor:      start,
			countedFrom: persistence.BucketAfter(start),
			attempts:    map[persistence.Marker]persistence.Attempt{},
			counts:      map[int64]persistence.Bucket{},
		}
	}
	return nil
}

// Load implements [persistence.OutboxCursorStore].
func (s *Store) Load(ctx context.Context, dispatcher string) (persistence.State, error) {
	if err := s.lock(ctx); err != nil {
		return persistence.State{}, err
	}
	defer s.mu.Unlock()
	c, err := s.existing(dispatcher)
	if err != nil {
		return persistence.State{}, err
	}
	attempts := c.failing()
	state := c.state()
	state.Attempts = attempts[:min(len(attempts), persistence.MaxLoadedAttempts)]
	return state, nil
}

// Acquire implements [persistence.OutboxCursorStore].
func (s *Store) Acquire(ctx context.Context, dispatcher, owner string, duration time.Duration) (persistence.Lease, error) {
	if err := persistence.CheckOwner(owner, duration); err != nil {
		return persistence.Lease{}, err
	}
	if err := s.lock(ctx); err != nil {
		return persistence.Lease{}, err
	}
	defer s.mu.Unlock()
	c, err := s.existing(dispatcher)
	if err != nil {
		return persistence.Lease{}, err
	}
	held := c.lease.Owner != ""
	if held && c.lease.Owner != owner && c.lease.ExpiresTime.After(now()) {
		return persistence.Lease{}, fmt.Errorf("memstore: dispatcher %q, owner %q until %s: %w",
			dispatcher, c.lease.Owner, c.lease.ExpiresTime.Format(time.RFC3339), persistence.ErrLeaseHeld)
	}
	if c.lease.Owner != owner {
		c.lease.Token = max(c.lease.Token, s.tokens[dispatcher]) + 1
		c.lease.Unclean = held
	}
	c.lease.Owner = owner
	c.lease.ExpiresTime = now().Add(duration)
	return c.lease, nil
}

// Release implements [persistence.OutboxCursorStore].
func (s *Store) Release(ctx context.Context, lease persistence.Lease) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	c, err := s.fenced(lease)
	if err != nil {
		return err
	}
	c.lease = persistence.Lease{Dispatcher: lease.Dispatcher, Token: lease.Token}
	return nil
}

// ListCursors implements [persistence.CursorAdmin].
func (s *Store) ListCursors(ctx context.Context) ([]persistence.State, error) {
	if err := s.lock(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	var states []persistence.State
	for _, name := range slices.Sorted(maps.Keys(s.sidecars)) {
		c := s.sidecars[name]
		states = append(states, c.state())
	}
	return states, nil
}

// Rewind implements [persistence.CursorAdmin].
func (s *Store) Rewind(ctx context.Context, dispatcher string, to persistence.Cursor) error {
	if err := persistence.CheckDispatcher(dispatcher, to); err != nil {
		return err
	}
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	c, err := s.existing(dispatcher)
	if err != nil {
		return err
	}
	c.cursor, c.count, c.offsets = to, 0, persistence.Offsets{}
	c.countedFrom = persistence.BucketAfter(to)
	c.lease.Token++
	for _, sub := range s.subscriptions {
		if sub.Dispatcher == dispatcher {
			sub.Rewind(to)
		}
	}
	return nil
}

// Forget implements [persistence.CursorAdmin].
func (s *Store) Forget(ctx context.Context, dispatcher string) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	c, err := s.existing(dispatcher)
	if err != nil {
		return err
	}
	s.tokens[dispatcher] = max(c.lease.Token, s.tokens[dispatcher])
	delete(s.sidecars, dispatcher)
	maps.DeleteFunc(s.subscriptions, func(_ persistence.Subscription, sub *subscription) bool { return sub.Dispatcher == dispatcher })
	return nil
}
