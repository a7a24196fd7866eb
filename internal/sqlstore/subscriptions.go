package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/onward-go/outbox/persistence"
)

// A dispatcher's subscriptions are written by whoever has locked its cursor, so
// that they can be read, thought about, and written.

// Register implements persistence.SubscriptionStore.
func (s *Store) Register(ctx context.Context, dispatcher string, subscriptions ...persistence.Subscription) error {
	if err := s.checkSubscriptions(dispatcher, subscriptions); err != nil {
		return err
	}
	return s.sidecar(ctx, func(ctx context.Context, conn Conn) error {
		return s.registering(ctx, conn, dispatcher, subscriptions, func(state persistence.State) error {
			return s.register(ctx, conn, state.Lease.Dispatcher, state.Cursor, subscriptions)
		})
	})
}

// RegisterAt implements persistence.SubscriptionStore.
//
// The subscriptions are written before the markers of what is visible, and both are
// committed together: another replica that registers them waits, finds them, and
// marks nothing that has been published since.
func (s *Store) RegisterAt(ctx context.Context, dispatcher string, begin persistence.Beginning, subscriptions ...persistence.Subscription) (left bool, err error) {
	if err := persistence.CheckDispatcher(dispatcher, begin.At); err != nil {
		return false, err
	}
	if err := s.checkSubscriptions(dispatcher, subscriptions); err != nil {
		return false, err
	}
	run := s.sidecar
	if begin.Settle {
		run = s.readCommitted
	}
	err = run(ctx, func(ctx context.Context, conn Conn) error {
		return s.registering(ctx, conn, dispatcher, subscriptions, func(state persistence.State) error {
			all, err := s.listSubscriptions(ctx, conn)
			if err != nil {
				return err
			}
			fresh := slices.DeleteFunc(slices.Clone(subscriptions), func(sub persistence.Subscription) bool {
				return slices.ContainsFunc(all, func(s persistence.SubscriptionState) bool { return s.Subscription == sub })
			})
			start := begin.Start(state.Cursor)
			err = s.register(ctx, conn, dispatcher, start, subscriptions)
			if err == nil && begin.Settle && len(fresh) > 0 {
				left, err = s.settleVisible(ctx, conn, start, fresh)
			}
			return err
		})
	})
	return left, err
}

func (s *Store) checkSubscriptions(dispatcher string, subscriptions []persistence.Subscription) error {
	var problems []error
	for _, sub := range subscriptions {
		problems = append(problems, persistence.CheckSubscription(sub))
	}
	return s.failed(errors.Join(problems...), "register with dispatcher %q", dispatcher)
}

// registering runs register with the dispatcher's cursor locked.
func (s *Store) registering(ctx context.Context, conn Conn, dispatcher string, subscriptions []persistence.Subscription, register func(persistence.State) error) error {
	state, found, err := s.lockCursor(ctx, conn, dispatcher)
	if err == nil && !found {
		err = persistence.ErrNotFound
	}
	if err == nil {
		err = register(state)
	}
	if err == nil { // now that they are locked
		err = s.refuseForeign(ctx, conn, dispatcher, subscriptions)
	}
	return s.failed(err, "register subscriptions with dispatcher %q", dispatcher)
}

// register adds subscriptions that start at a position, and takes note that those
// which exist are served, also those of other dispatchers.
func (s *Store) register(ctx context.Context, conn Conn, dispatcher string, start persistence.Cursor, subscriptions []persistence.Subscription) error {
	if len(subscriptions) == 0 {
		return nil
	}
	keys, err := encodeSubscriptions(subscriptions)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, s.sql.RegisterSubscriptions, keys, dispatcher, s.at(start.CreatedTime), start.ID)
	return err
}

// settleVisible writes markers for the first events after a position, and reports
// whether there are more.
func (s *Store) settleVisible(ctx context.Context, conn Conn, after persistence.Cursor, subscriptions []persistence.Subscription) (left bool, err error) {
	keys, err := encodeSubscriptions(subscriptions)
	if err != nil {
		return false, err
	}
	at := s.at(after.CreatedTime)
	n, err := countRows(ctx, conn, s.sql.CountAfter, at, after.ID, persistence.MaxSettledAtStart+1)
	if err != nil || n == 0 {
		return false, err
	}
	_, err = conn.Exec(ctx, s.sql.SettleVisible, keys, at, after.ID, persistence.MaxSettledAtStart)
	return n > persistence.MaxSettledAtStart, err
}

// readCommitted runs fn in a transaction of its own under READ COMMITTED, on a
// connection of its own where the database has other ways to set it for one
// transaction. Under REPEATABLE READ what MySQL's INSERT reads is locked, and so
// are the gaps in which producers write.
func (s *Store) readCommitted(ctx context.Context, fn func(ctx context.Context, conn Conn) error) (err error) {
	if s.sql.SessionReadCommitted == "" {
		return s.sidecar(ctx, fn)
	}
	if _, err := s.pool(ctx, writing); err != nil {
		return err
	}
	session, err := s.cfg.Session(ctx)
	if err != nil {
		return s.failed(err, "open a connection")
	}
	defer func() { err = errors.Join(err, session.Close()) }() // which also rolls back
	for _, statement := range []string{s.sql.SessionReadCommitted, "START TRANSACTION"} {
		if _, err := session.Exec(ctx, statement); err != nil {
			return s.failed(err, "begin a transaction under READ COMMITTED")
		}
	}
	if err := fn(ctx, s.wrapped(session)); err != nil {
		return err
	}
	_, err = session.Exec(ctx, "COMMIT")
	return s.failed(err, "commit")
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
		return s.register(ctx, conn, dispatcher.Lease.Dispatcher, dispatcher.Cursor, subscriptions)
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
		case !found || state.Lease.Token != lease.Token || state.Lease.Incarnation != lease.Incarnation || state.Lease.Owner != lease.Owner:
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
