package sqlstore

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/onward-go/outbox/persistence"
)

// dispatcherStatuses returns what is known of the named dispatchers, or of all.
func (s *Store) dispatcherStatuses(ctx context.Context, conn Conn, names []string, now time.Time) ([]persistence.DispatcherStatus, error) {
	states, err := s.listCursors(ctx, conn)
	if err != nil {
		return nil, err
	}
	if states, err = named(states, names); err != nil {
		return nil, err
	}
	subscriptions, err := s.listSubscriptions(ctx, conn)
	if err != nil {
		return nil, err
	}
	letters, err := s.countLetters(ctx, conn)
	if err != nil {
		return nil, err
	}
	all := make([]persistence.DispatcherStatus, len(states))
	for i, state := range states {
		name := state.Lease.Dispatcher
		d := &all[i]
		*d = persistence.DispatcherStatus{
			Dispatcher: name, Cursor: state.Cursor, Lease: state.Lease.Status(now),
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
		if err := s.measure(ctx, conn, d, now); err != nil {
			return nil, fmt.Errorf("dispatcher %q: %w", name, err)
		}
	}
	return all, nil
}

// named returns the states of the named dispatchers, or all.
func named(states []persistence.State, names []string) ([]persistence.State, error) {
	if len(names) == 0 {
		return states, nil
	}
	found := make([]persistence.State, 0, len(names))
	for _, name := range names {
		i := slices.IndexFunc(states, func(st persistence.State) bool { return st.Lease.Dispatcher == name })
		if i < 0 {
			return nil, fmt.Errorf("dispatcher %q: %w", name, persistence.ErrNotFound)
		}
		found = append(found, states[i])
	}
	return found, nil
}

// measure asks for what a dispatcher has before it, and what it fails on.
func (s *Store) measure(ctx context.Context, conn Conn, d *persistence.DispatcherStatus, now time.Time) error {
	most := persistence.MaxStatusCount
	n, err := countRows(ctx, conn, s.sql.CountAfter, s.at(d.Cursor.CreatedTime), d.Cursor.ID, most+1)
	if err != nil {
		return err
	}
	d.After = persistence.CountTo(n, most)
	if n > 0 {
		event, found, err := s.nextEvent(ctx, conn, d.Cursor, endOfTime)
		if err != nil {
			return err
		}
		d.Head(event, found, now)
	}
	if n, err = countRows(ctx, conn, s.sql.CountAttempts, d.Dispatcher, most+1); err != nil || n == 0 {
		return err
	}
	d.FailingCount = persistence.CountTo(n, most)
	return conn.Query(ctx, s.sql.LoadAttempts, []any{d.Dispatcher, persistence.MaxStatusItems}, func(scan func(...any) error) error {
		a, err := scanAttempt(scan)
		d.Failing = append(d.Failing, a)
		return err
	})
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
	for _, own := range counts {
		for state, count := range own {
			if total[state] > persistence.MaxStatusCount {
				own[state] = persistence.Count{N: min(count.N, persistence.MaxStatusCount), More: true}
			}
		}
	}
	return counts, err
}
