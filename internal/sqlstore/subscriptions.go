package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/onward-go/outbox/persistence"
)

// A dispatcher's subscriptions are written by whoever has locked its cursor, so
// that they can be read, thought about, and written.

// Register implements persistence.SubscriptionStore.
func (s *Store) Register(ctx context.Context, dispatcher string, subscriptions ...persistence.Subscription) error {
	var problems []error
	for _, sub := range subscriptions {
		problems = append(problems, persistence.CheckSubscription(sub))
	}
	if err := errors.Join(problems...); err != nil {
		return s.failed(err, "register with dispatcher %q", dispatcher)
	}
	return s.sidecar(ctx, func(ctx context.Context, conn Conn) error {
		state, found, err := s.lockCursor(ctx, conn, dispatcher)
		if err == nil && !found {
			err = persistence.ErrNotFound
		}
		if err == nil {
			err = s.register(ctx, conn, state, subscriptions)
		}
		if err == nil { // now that they are locked
			err = s.refuseForeign(ctx, conn, dispatcher, subscriptions)
		}
		return s.failed(err, "register subscriptions with dispatcher %q", dispatcher)
	})
}

// register adds subscriptions, and takes note that those which exist are
// served, also those of other dispatchers.
func (s *Store) register(ctx context.Context, conn Conn, dispatcher persistence.State, subscriptions []persistence.Subscription) error {
	if len(subscriptions) == 0 {
		return nil
	}
	keys, err := encodeSubscriptions(subscriptions)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, s.sql.RegisterSubscriptions, keys, dispatcher.Lease.Dispatcher, s.at(dispatcher.Cursor.CreatedTime), dispatcher.Cursor.ID)
	return err
}

func (s *Store) refuseForeign(ctx context.Context, conn Conn, dispatcher string, subscriptions []persistence.Subscription) error {
	all, err := s.listSubscriptions(ctx, conn)
	if err != nil {
		return err
	}
	wanted := setOf(subscriptions)
	for _, sub := range all {
		if wanted[sub.Subscription] && sub.Dispatcher != dispatcher {
			return fmt.Errorf("%w: handler %q of event type %q belongs to dispatcher %q: give the handler another name, or forget that dispatcher",
				persistence.ErrInvalid, sub.Handler, sub.EventType, sub.Dispatcher)
		}
	}
	return nil
}

// Serve implements persistence.SubscriptionStore.
func (s *Store) Serve(ctx context.Context, lease persistence.Lease, subscriptions ...persistence.Subscription) (states []persistence.SubscriptionState, err error) {
	err = s.underLease(ctx, lease, "serve subscriptions", func(ctx context.Context, conn Conn, dispatcher persistence.State) error {
		own, err := s.subscriptionsOf(ctx, conn, lease.Dispatcher)
		if err != nil {
			return err
		}
		found := map[persistence.Subscription]persistence.SubscriptionState{}
		for _, sub := range own {
			found[sub.Subscription] = sub
		}
		for _, sub := range subscriptions {
			state, ok := found[sub]
			if !ok {
				return fmt.Errorf("handler %q of event type %q: %w", sub.Handler, sub.EventType, persistence.ErrNotFound)
			}
			states = append(states, state)
		}
		served := setOf(subscriptions)
		for _, sub := range own {
			if !served[sub.Subscription] && sub.LeaveBehind(dispatcher.Cursor) {
				if err := s.move(ctx, conn, sub); err != nil {
					return err
				}
			}
		}
		return s.register(ctx, conn, dispatcher, subscriptions)
	})
	if err != nil {
		return nil, err
	}
	return states, nil
}

// Prune implements persistence.SubscriptionStore.
func (s *Store) Prune(ctx context.Context, lease persistence.Lease, unserved time.Duration) (pruned []persistence.Subscription, err error) {
	err = s.underLease(ctx, lease, "prune", func(ctx context.Context, conn Conn, dispatcher persistence.State) error {
		err := conn.Query(ctx, s.sql.ListUnserved, []any{lease.Dispatcher, unserved.Microseconds()}, func(scan func(...any) error) error {
			var sub persistence.Subscription
			err := scan(&sub.EventType, &sub.Handler)
			pruned = append(pruned, sub)
			return err
		})
		if err != nil {
			return err
		}
		for _, sub := range pruned {
			if _, err := conn.Exec(ctx, s.sql.ForgetSubscription, sub.EventType, sub.Handler); err != nil {
				return err
			}
		}
		old := dispatcher.Cursor.CreatedTime.Add(-2 * persistence.AuditWindow)
		if old.Unix() < 0 { // at the beginning; and not all databases have a time before that
			return nil
		}
		return s.forgetHistory(ctx, conn, lease.Dispatcher, old)
	})
	if err != nil {
		return nil, err
	}
	return pruned, nil
}

// underLease runs fn in a transaction of its own that is the only one to write
// what belongs to the dispatcher, unless the lease is lost.
func (s *Store) underLease(ctx context.Context, lease persistence.Lease, what string, fn func(context.Context, Conn, persistence.State) error) error {
	return s.sidecar(ctx, func(ctx context.Context, conn Conn) error {
		state, found, err := s.lockCursor(ctx, conn, lease.Dispatcher)
		switch {
		case err != nil:
		case !found || state.Lease.Token != lease.Token || state.Lease.Owner != lease.Owner:
			return s.fenced(lease, 0, nil, what)
		default:
			err = fn(ctx, conn, state)
		}
		return s.failed(err, "dispatcher %q: %s", lease.Dispatcher, what)
	})
}

// ListSubscriptions implements persistence.SubscriptionStore.
func (s *Store) ListSubscriptions(ctx context.Context) ([]persistence.SubscriptionState, error) {
	conn, err := s.pool(ctx, reading)
	if err != nil {
		return nil, err
	}
	states, err := s.listSubscriptions(ctx, conn)
	return states, s.failed(err, "list subscriptions")
}

func (s *Store) listSubscriptions(ctx context.Context, conn Conn) (states []persistence.SubscriptionState, err error) {
	err = conn.Query(ctx, s.sql.ListSubscriptions, nil, func(scan func(...any) error) error {
		var sub persistence.SubscriptionState
		var behind persistence.Cursor
		var behindID *string
		err := scan(&sub.EventType, &sub.Handler, &sub.Dispatcher, timestamp{&sub.Start.CreatedTime}, &sub.Start.ID,
			timestamp{&behind.CreatedTime}, &behindID)
		if behindID != nil {
			behind.ID = *behindID
			sub.Behind = &behind
		}
		states = append(states, sub)
		return err
	})
	return states, err
}

func (s *Store) subscriptionsOf(ctx context.Context, conn Conn, dispatcher string) (own []persistence.SubscriptionState, err error) {
	all, err := s.listSubscriptions(ctx, conn)
	for _, sub := range all {
		if sub.Dispatcher == dispatcher {
			own = append(own, sub)
		}
	}
	return own, err
}

// moveSubscriptions writes those of a dispatcher's subscriptions that change
// changes. The caller has locked the cursor.
func (s *Store) moveSubscriptions(ctx context.Context, conn Conn, dispatcher string, change func(*persistence.SubscriptionState) bool) error {
	own, err := s.subscriptionsOf(ctx, conn, dispatcher)
	if err != nil {
		return err
	}
	for _, sub := range own {
		if change(&sub) {
			if err := s.move(ctx, conn, sub); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *Store) move(ctx context.Context, conn Conn, sub persistence.SubscriptionState) error {
	var behindTime, behindID any
	if sub.Behind != nil {
		behindTime, behindID = s.at(sub.Behind.CreatedTime), sub.Behind.ID
	}
	_, err := conn.Exec(ctx, s.sql.MoveSubscription, sub.EventType, sub.Handler, s.at(sub.Start.CreatedTime), sub.Start.ID, behindTime, behindID)
	return err
}

func setOf(subscriptions []persistence.Subscription) map[persistence.Subscription]bool {
	set := map[persistence.Subscription]bool{}
	for _, sub := range subscriptions {
		set[sub] = true
	}
	return set
}
