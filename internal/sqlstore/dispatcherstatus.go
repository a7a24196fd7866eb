package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/onward-go/outbox/persistence"
)

// dispatcherStatuses adds what is known of the named dispatchers, or of all. Those that do
// not exist are the error, beside those that do.
func (s *Store) dispatcherStatuses(ctx context.Context, conn Conn, names []string, status *persistence.Status) error {
	outbox := &status.OutboxStatus
	states, err := s.listCursors(ctx, conn)
	if err != nil {
		return s.setAside(ctx, outbox, persistence.StatusDispatchers, "", err)
	}
	states, missing := named(states, names)
	subscriptions, err := s.listSubscriptions(ctx, conn)
	if err != nil {
		subscriptions = nil // all or none
	}
	if err := s.setAside(ctx, outbox, persistence.StatusBehind, "", err); err != nil {
		return err
	}
	letters, err := s.countLetters(ctx, conn)
	if err := s.setAside(ctx, outbox, persistence.StatusDeadLetters, "", err); err != nil {
		return err
	}
	status.Dispatchers = make([]persistence.DispatcherStatus, len(states))
	for i, state := range states {
		name := state.Lease.Dispatcher
		d := &status.Dispatchers[i]
		*d = persistence.DispatcherStatus{
			Dispatcher: name, Cursor: state.Cursor, Lease: state.Lease.Status(status.Now),
			Failing: []persistence.Attempt{}, DeadLetters: letters[name], Behind: []persistence.SubscriptionState{},
		}
		if d.DeadLetters == nil {
			d.DeadLetters = map[persistence.DeadLetterState]persistence.Count{}
		}
		for _, sub := range subscriptions {
			if sub.Dispatcher == name && sub.Behind != nil {
				d.Behind = append(d.Behind, sub)
			}
		}
		if err := s.setAside(ctx, outbox, persistence.StatusAfter, name, s.measure(ctx, conn, d, status.Now)); err != nil {
			return fmt.Errorf("dispatcher %q: %w", name, err)
		}
		if err := s.setAside(ctx, outbox, persistence.StatusFailing, name, s.listFailing(ctx, conn, d)); err != nil {
			return fmt.Errorf("dispatcher %q: %w", name, err)
		}
	}
	return missing
}

// named returns the states of the named dispatchers, or all. The error names those that
// there are not.
func named(states []persistence.State, names []string) (found []persistence.State, missing error) {
	if len(names) == 0 {
		return states, nil
	}
	for _, name := range names {
		i := slices.IndexFunc(states, func(st persistence.State) bool { return st.Lease.Dispatcher == name })
		if i < 0 {
			missing = errors.Join(missing, fmt.Errorf("dispatcher %q: %w", name, persistence.ErrNotFound))
			continue
		}
		found = append(found, states[i])
	}
	return found, missing
}

// measure asks for what a dispatcher has before it: all of it, or an error.
func (s *Store) measure(ctx context.Context, conn Conn, d *persistence.DispatcherStatus, now time.Time) error {
	most := persistence.MaxStatusCount
	n, err := countRows(ctx, conn, s.sql.CountAfter, s.at(d.Cursor.CreatedTime), d.Cursor.ID, most+1)
	if err != nil {
		return err
	}
	if n > 0 {
		event, found, err := s.nextEvent(ctx, conn, d.Cursor, endOfTime)
		if err != nil {
			return err
		}
		if found {
			d.Oldest, d.OldestAge = &event, event.Age(now)
		}
	}
	d.After = persistence.CountTo(n, most)
	return nil
}

// listFailing asks for what a dispatcher fails on: all of it, or an error.
func (s *Store) listFailing(ctx context.Context, conn Conn, d *persistence.DispatcherStatus) error {
	most := persistence.MaxStatusCount
	n, err := countRows(ctx, conn, s.sql.CountAttempts, d.Dispatcher, most+1)
	if err != nil || n == 0 {
		return err
	}
	failing := []persistence.Attempt{}
	err = conn.Query(ctx, s.sql.LoadAttempts, []any{d.Dispatcher, persistence.MaxStatusItems}, func(scan func(...any) error) error {
		a, err := scanAttempt(scan)
		failing = append(failing, a)
		return err
	})
	if err == nil {
		d.Failing, d.FailingCount = failing, persistence.CountTo(n, most)
	}
	return err
}

func countRows(ctx context.Context, conn Conn, query string, args ...any) (n int, err error) {
	err = conn.Query(ctx, query, args, func(scan func(...any) error) error { return scan(&n) })
	return n, err
}

type letterCounts map[persistence.DeadLetterState]persistence.Count

// countLetters counts dead letters by dispatcher and state. The bound is for all
// dispatchers together.
func (s *Store) countLetters(ctx context.Context, conn Conn) (map[string]letterCounts, error) {
	counts := map[string]letterCounts{}
	total := map[persistence.DeadLetterState]int{}
	err := conn.Query(ctx, s.sql.CountLetters, []any{persistence.MaxStatusCount + 1}, func(scan func(...any) error) error {
		var dispatcher, state string
		var n int
		err := scan(&dispatcher, &state, &n)
		if counts[dispatcher] == nil {
			counts[dispatcher] = letterCounts{}
		}
		counts[dispatcher][persistence.DeadLetterState(state)] = persistence.Count{N: n}
		total[persistence.DeadLetterState(state)] += n
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, own := range counts {
		for state, count := range own {
			if total[state] > persistence.MaxStatusCount {
				own[state] = persistence.Count{N: min(count.N, persistence.MaxStatusCount), More: true}
			}
		}
	}
	return counts, nil
}
