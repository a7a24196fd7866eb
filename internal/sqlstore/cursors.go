package sqlstore

import (
	"context"
	"fmt"
	"time"

	"github.com/onward-go/outbox/persistence"
)

// Create implements persistence.OutboxCursorStore.
func (s *Store) Create(ctx context.Context, dispatcher string, start persistence.Cursor) error {
	if err := persistence.CheckDispatcher(dispatcher, start); err != nil {
		return err
	}
	conn, err := s.pool(ctx, writing)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, s.sql.CreateCursor, dispatcher, s.at(start.CreatedTime), start.ID, s.at(persistence.BucketAfter(start)))
	return s.failed(err, "create dispatcher %q", dispatcher)
}

// Load implements persistence.OutboxCursorStore.
func (s *Store) Load(ctx context.Context, dispatcher string) (persistence.State, error) {
	conn, err := s.pool(ctx, reading)
	if err != nil {
		return persistence.State{}, err
	}
	state, found, err := s.loadCursor(ctx, conn, dispatcher)
	if err == nil && !found {
		err = persistence.ErrNotFound
	}
	if err == nil {
		err = conn.Query(ctx, s.sql.LoadAttempts, []any{dispatcher, persistence.MaxLoadedAttempts}, func(scan func(...any) error) error {
			a, err := scanAttempt(scan)
			state.Attempts = append(state.Attempts, a)
			return err
		})
	}
	return state, s.failed(err, "load dispatcher %q", dispatcher)
}

func (s *Store) loadCursor(ctx context.Context, conn Conn, dispatcher string) (state persistence.State, found bool, err error) {
	return s.oneCursor(ctx, conn, s.sql.LoadCursor, dispatcher)
}

// lockCursor makes the transaction the only one that writes what belongs to the
// dispatcher.
func (s *Store) lockCursor(ctx context.Context, conn Conn, dispatcher string) (state persistence.State, found bool, err error) {
	return s.oneCursor(ctx, conn, s.sql.LockCursor, dispatcher)
}

func (s *Store) oneCursor(ctx context.Context, conn Conn, query, dispatcher string) (state persistence.State, found bool, err error) {
	err = conn.Query(ctx, query, []any{dispatcher}, func(scan func(...any) error) error {
		found = true
		state, err = s.scanState(scan)
		return err
	})
	return state, found, err
}

func (s *Store) scanState(scan func(...any) error) (persistence.State, error) {
	var st persistence.State
	var life *string
	err := scan(&st.Lease.Dispatcher, timestamp{&st.Cursor.CreatedTime}, &st.Cursor.ID,
		&st.Lease.Owner, &st.Lease.Token, timestamp{&st.Lease.ExpiresTime}, &st.Lease.Unclean, timestamp{&st.CountedFrom}, &st.Count,
		&st.Offsets.Micros, &st.Offsets.Rows, &life)
	switch {
	case err != nil:
	case life != nil:
		st.Lease.Incarnation = *life
	case s.cfg.Dialect.tellsLife:
		err = refuse("the server does not tell when it was started, and a lease is good for one life of it", "have the status variable Uptime shown to the user")
	}
	return st, err
}

// Acquire implements persistence.OutboxCursorStore.
func (s *Store) Acquire(ctx context.Context, dispatcher, owner string, duration time.Duration) (persistence.Lease, error) {
	if err := persistence.CheckOwner(owner, duration); err != nil {
		return persistence.Lease{}, err
	}
	conn, err := s.pool(ctx, writing)
	if err != nil {
		return persistence.Lease{}, err
	}
	if err := s.checkAgain(ctx, conn); err != nil {
		return persistence.Lease{}, err
	}
	if _, err := conn.Exec(ctx, s.sql.AcquireLease, dispatcher, owner, duration.Microseconds()); err != nil {
		return persistence.Lease{}, s.failed(err, "acquire the lease of dispatcher %q", dispatcher)
	}
	state, found, err := s.loadCursor(ctx, conn, dispatcher)
	lease := state.Lease
	switch {
	case err != nil:
	case !found:
		err = persistence.ErrNotFound
	case lease.Owner != owner:
		err = fmt.Errorf("%w: owner %q, until %s", persistence.ErrLeaseHeld, lease.Owner, lease.ExpiresTime.Format(time.RFC3339))
	}
	if err != nil {
		return persistence.Lease{}, s.failed(err, "acquire the lease of dispatcher %q", dispatcher)
	}
	return lease, nil
}

// Release implements persistence.OutboxCursorStore.
func (s *Store) Release(ctx context.Context, lease persistence.Lease) error {
	conn, err := s.pool(ctx, writing)
	if err != nil {
		return err
	}
	n, err := conn.Exec(ctx, s.sql.ReleaseLease, s.fence(lease)...)
	return s.fenced(lease, n, err, "release the lease")
}

// fenced makes an error of a fenced write that found no row.
func (s *Store) fenced(lease persistence.Lease, rows int64, err error, what string) error {
	if err == nil && rows == 0 {
		err = fmt.Errorf("token %d: %w: another owner has taken it, an operator has moved the cursor, or the server has been restarted or replaced", lease.Token, persistence.ErrLeaseLost)
	}
	return s.failed(err, "dispatcher %q: %s", lease.Dispatcher, what)
}

// ListCursors implements persistence.CursorAdmin.
func (s *Store) ListCursors(ctx context.Context) ([]persistence.State, error) {
	conn, err := s.pool(ctx, reading)
	if err != nil {
		return nil, err
	}
	states, err := s.listCursors(ctx, conn)
	return states, s.failed(err, "list cursors")
}

func (s *Store) listCursors(ctx context.Context, conn Conn) (states []persistence.State, err error) {
	err = conn.Query(ctx, s.sql.ListCursors, nil, func(scan func(...any) error) error {
		st, err := s.scanState(scan)
		states = append(states, st)
		return err
	})
	return states, err
}

// Rewind implements persistence.CursorAdmin.
func (s *Store) Rewind(ctx context.Context, dispatcher string, to persistence.Cursor) error {
	if err := persistence.CheckDispatcher(dispatcher, to); err != nil {
		return err
	}
	return s.sidecar(ctx, func(ctx context.Context, conn Conn) error {
		n, err := conn.Exec(ctx, s.sql.RewindCursor, dispatcher, s.at(to.CreatedTime), to.ID, s.at(persistence.BucketAfter(to)))
		if err := s.found(n, err, "rewind dispatcher %q", dispatcher); err != nil {
			return err
		}
		err = s.moveSubscriptions(ctx, conn, dispatcher, func(sub *persistence.SubscriptionState) bool { return sub.Rewind(to) })
		return s.failed(err, "rewind the subscriptions of dispatcher %q", dispatcher)
	})
}

// Forget implements persistence.CursorAdmin.
func (s *Store) Forget(ctx context.Context, dispatcher string) error {
	return s.sidecar(ctx, func(ctx context.Context, conn Conn) error {
		state, found, err := s.lockCursor(ctx, conn, dispatcher)
		if err == nil && !found {
			err = persistence.ErrNotFound
		}
		// No token is given twice, so the highest one outlives the dispatcher.
		if err == nil {
			_, err = conn.Exec(ctx, s.sql.KeepToken, dispatcher, s.at(endOfTime), state.Lease.Token)
		}
		if err == nil {
			_, err = conn.Exec(ctx, s.sql.ForgetCursor, dispatcher)
		}
		if err != nil {
			return s.failed(err, "forget dispatcher %q", dispatcher)
		}
		subs, err := s.subscriptionsOf(ctx, conn, dispatcher)
		for _, sub := range subs {
			if err == nil {
				_, err = conn.Exec(ctx, s.sql.ForgetSubscription, sub.EventType, sub.Handler)
			}
		}
		if err == nil {
			err = s.forgetHistory(ctx, conn, dispatcher, endOfTime)
		}
		return s.failed(err, "forget what belongs to dispatcher %q", dispatcher)
	})
}

// endOfTime is the last time that all databases can keep. In place of a count the row
// of that time has the highest token of a dispatcher that has been forgotten: a table
// of its own would need a grant before a release could run that has it.
var endOfTime = time.Date(9999, 12, 31, 23, 59, 59, 999_999_000, time.UTC)

// forgetHistory deletes the counts and failures of events before the time.
func (s *Store) forgetHistory(ctx context.Context, conn Conn, dispatcher string, before time.Time) error {
	for _, statement := range []string{s.sql.ForgetAttempts, s.sql.ForgetCounts} {
		if _, err := conn.Exec(ctx, statement, dispatcher, s.at(before)); err != nil {
			return err
		}
	}
	return nil
}

// sidecar runs fn in a transaction of its own.
func (s *Store) sidecar(ctx context.Context, fn func(ctx context.Context, conn Conn) error) error {
	if _, err := s.pool(ctx, writing); err != nil {
		return err
	}
	return s.transaction(ctx, fn)
}

// found makes an error of a write that found no row.
func (s *Store) found(rows int64, err error, format string, args ...any) error {
	if err == nil && rows == 0 {
		err = persistence.ErrNotFound
	}
	return s.failed(err, format, args...)
}
