package memstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/onward-go/outbox/persistence"
)

// subscription is what the store remembers of one.
type subscription struct {
	persistence.SubscriptionState
	servedTime time.Time
}

// state returns a copy that the caller may keep.
func (s *subscription) state() persistence.SubscriptionState {
	state := s.SubscriptionState
	if state.Behind != nil {
		behind := *state.Behind
		state.Behind = &behind
	}
	return state
}

// Register implements [persistence.SubscriptionStore].
func (s *Store) Register(ctx context.Context, dispatcher string, subscriptions ...persistence.Subscription) error {
	_, err := s.register(ctx, dispatcher, nil, subscriptions)
	return err
}

// RegisterAt implements [persistence.SubscriptionStore].
func (s *Store) RegisterAt(ctx context.Context, dispatcher string, begin persistence.Beginning, subscriptions ...persistence.Subscription) (left bool, err error) {
	if err := persistence.CheckDispatcher(dispatcher, begin.At); err != nil {
		return false, err
	}
	return s.register(ctx, dispatcher, &begin, subscriptions)
}

func (s *Store) register(ctx context.Context, dispatcher string, begin *persistence.Beginning, subscriptions []persistence.Subscription) (left bool, err error) {
	var problems []error
	for _, key := range subscriptions {
		problems = append(problems, persistence.CheckSubscription(key))
	}
	if err := errors.Join(problems...); err != nil {
		return false, err
	}
	if err := s.lock(ctx); err != nil {
		return false, err
	}
	defer s.mu.Unlock()
	c, err := s.existing(dispatcher)
	if err != nil {
		return false, err
	}
	for _, key := range subscriptions {
		if sub, exists := s.subscriptions[key]; exists && sub.Dispatcher != dispatcher {
			return false, fmt.Errorf("memstore: dispatcher %q: %w: handler %q of event type %q belongs to dispatcher %q: give the handler another name, or forget that dispatcher",
				dispatcher, persistence.ErrInvalid, key.Handler, key.EventType, sub.Dispatcher)
		}
	}
	for _, key := range subscriptions {
		sub, exists := s.subscriptions[key]
		if !exists {
			start := c.cursor
			if begin != nil {
				start = begin.Start(c.cursor)
				left = begin.Settle && s.settleVisible(key, start) || left
			}
			sub = &subscription{SubscriptionState: persistence.SubscriptionState{Subscription: key, Dispatcher: dispatcher, Start: start}}
			sub.LeaveBehind(start)
			s.subscriptions[key] = sub
		}
		sub.servedTime = now()
	}
	return left, nil
}

// settleVisible marks the first events after a position as applied, and reports
// whether there are more. The caller holds the store's mutex.
func (s *Store) settleVisible(key persistence.Subscription, after persistence.Cursor) (left bool) {
	visible := s.rows[s.search(after):]
	n := min(len(visible), persistence.MaxSettledAtStart)
	for _, r := range visible[:n] {
		marker := persistence.Marker{Event: r.Cursor(), Handler: key.Handler}.Key()
		if r.EventType != key.EventType {
			continue
		}
		if s.markers.rows[marker] == nil {
			s.markers.rows[marker] = &row[struct{}]{}
		}
		s.markers.rows[marker].committed.exists = true
	}
	return n < len(visible)
}

// Serve implements [persistence.SubscriptionStore].
func (s *Store) Serve(ctx context.Context, lease persistence.Lease, subscriptions ...persistence.Subscription) ([]persistence.SubscriptionState, error) {
	if err := s.lock(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	c, err := s.fenced(lease)
	if err != nil {
		return nil, err
	}
	states := make([]persistence.SubscriptionState, len(subscriptions))
	for i, key := range subscriptions {
		sub, ok := s.subscriptions[key]
		if !ok || sub.Dispatcher != lease.Dispatcher {
			return nil, fmt.Errorf("memstore: dispatcher %q: handler %q of event type %q: %w", lease.Dispatcher, key.Handler, key.EventType, persistence.ErrNotFound)
		}
		states[i] = sub.state()
	}
	for key, sub := range s.subscriptions {
		switch {
		case sub.Dispatcher != lease.Dispatcher:
		case slices.Contains(subscriptions, key):
			sub.servedTime = now()
		default:
			sub.LeaveBehind(c.cursor)
		}
	}
	return states, nil
}

// Prune implements [persistence.SubscriptionStore].
func (s *Store) Prune(ctx context.Context, lease persistence.Lease, unserved time.Duration) ([]persistence.Subscription, error) {
	if err := s.lock(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	c, err := s.fenced(lease)
	if err != nil {
		return nil, err
	}
	var pruned []persistence.Subscription
	for key, sub := range s.subscriptions {
		if sub.Dispatcher == lease.Dispatcher && now().Sub(sub.servedTime) >= unserved {
			pruned = append(pruned, key)
			delete(s.subscriptions, key)
		}
	}
	old := c.cursor.CreatedTime.Add(-2 * persistence.AuditWindow)
	maps.DeleteFunc(c.counts, func(micros int64, _ persistence.Bucket) bool { return micros < old.UnixMicro() })
	maps.DeleteFunc(c.attempts, func(_ persistence.Marker, a persistence.Attempt) bool { return a.Event.CreatedTime.Before(old) })
	slices.SortFunc(pruned, compareSubscriptions)
	return pruned, nil
}

// ListSubscriptions implements [persistence.SubscriptionStore].
func (s *Store) ListSubscriptions(ctx context.Context) ([]persistence.SubscriptionState, error) {
	if err := s.lock(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	return s.listSubscriptions(), nil
}

func (s *Store) listSubscriptions() []persistence.SubscriptionState {
	var states []persistence.SubscriptionState
	for _, key := range slices.SortedFunc(maps.Keys(s.subscriptions), compareSubscriptions) {
		states = append(states, s.subscriptions[key].state())
	}
	return states
}

func compareSubscriptions(a, b persistence.Subscription) int {
	return cmp.Or(strings.Compare(a.EventType, b.EventType), strings.Compare(a.Handler, b.Handler))
}
