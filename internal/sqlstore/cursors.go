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
	_, err = conn.Exec(ctx, s.sql.CreateCursor, dispatcher, s.at(start.CreatedTime), start.ID)
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
	err = conn.Query(ctx, s.sql.LoadCursor, []any{dispatcher}, func(scan func(...any) error) error {
		found = true
		state, err = scanState(scan)
		return err
	})
	return state, found, err
}

func scanState(scan func(...any) error) (persistence.State, error) {
	var st persistence.State
	err := scan(&st.Lease.Dispatcher, timestamp{&st.Cursor.CreatedTime}, &st.Cursor.ID,
		&st.Lease.Owner, &st.Lease.Token, timestamp{&st.Lease.ExpiresTime}, &st.Lease.Unclean)
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
	n, err := conn.Exec(ctx, s.sql.ReleaseLease, lease.Dispatcher, lease.Token)
	return s.fenced(lease, n, err, "release the lease")
}

// Save implements persistence.OutboxCursorStore.
func (s *Store) Save(ctx context.Context, lease persistence.Lease, progress persistence.Progress) error {
	conn, err := s.pool(ctx, writing)
	if err != nil {
		return err
	}
	args := []any{lease.Dispatcher, lease.Token, s.at(progress.Cursor.CreatedTime), progress.Cursor.ID}
	n, err := conn.Exec(ctx, s.sql.SaveCursor, args...)
	if err := s.fenced(lease, n, err, "save the cursor at "+progress.Cursor.String()); err != nil {
		return err
	}
	// A statement of its own: failures that outlive the cursor's move by a
	// moment, or by a crash, are harmless.
	_, err = conn.Exec(ctx, s.sql.SettleAttempts, args...)
	return s.failed(err, "forget the failures up to %s", progress.Cursor)
}

// RecordFailure implements persistence.OutboxCursorStore.
func (s *Store) RecordFailure(ctx context.Context, lease persistence.Lease, failure persistence.Failure) (persistence.Attempt, error) {
	conn, err := s.pool(ctx, writing)
	if err != nil {
		return persistence.Attempt{}, err
	}
	at, id := s.at(failure.Event.CreatedTime), failure.Event.ID
	n, err := conn.Exec(ctx, s.sql.RecordFailure, lease.Dispatcher, lease.Token, at, id,
		failure.Handler, failure.Error, failure.RetryAfter.Microseconds())
	if err := s.fenced(lease, n, err, "record a failure"); err != nil {
		return persistence.Attempt{}, err
	}
	var attempt persistence.Attempt
	err = conn.Query(ctx, s.sql.LoadAttempt, []any{lease.Dispatcher, at, id, failure.Handler}, func(scan func(...any) error) error {
		attempt, err = scanAttempt(scan)
		return err
	})
	return attempt, s.failed(err, "read the failures of event %s, handler %q", failure.Event, failure.Handler)
}

func scanAttempt(scan func(...any) error) (persistence.Attempt, error) {
	var a persistence.Attempt
	err := scan(timestamp{&a.Event.CreatedTime}, &a.Event.ID, &a.Handler, &a.Attempts, &a.LastError, timestamp{&a.NextTime})
	return a, err
}

// fenced makes an error of a fenced write that found no row.
func (s *Store) fenced(lease persistence.Lease, rows int64, err error, what string) error {
	if err == nil && rows == 0 {
		err = fmt.Errorf("token %d: %w", lease.Token, persistence.ErrLeaseLost)
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
		st, err := scanState(scan)
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
	conn, err := s.pool(ctx, writing)
	if err != nil {
		return err
	}
	n, err := conn.Exec(ctx, s.sql.RewindCursor, dispatcher, s.at(to.CreatedTime), to.ID)
	return s.found(n, err, "rewind dispatcher %q", dispatcher)
}

// Forget implements persistence.CursorAdmin.
func (s *Store) Forget(ctx context.Context, dispatcher string) error {
	conn, err := s.pool(ctx, writing)
	if err != nil {
		return err
	}
	n, err := conn.Exec(ctx, s.sql.ForgetCursor, dispatcher)
	if err := s.found(n, err, "forget dispatcher %q", dispatcher); err != nil {
		return err
	}
	_, err = conn.Exec(ctx, s.sql.ForgetAttempts, dispatcher)
	return s.failed(err, "forget the failures of dispatcher %q", dispatcher)
}

// found makes an error of a write that found no row.
func (s *Store) found(rows int64, err error, format string, args ...any) error {
	if err == nil && rows == 0 {
		err = persistence.ErrNotFound
	}
	return s.failed(err, format, args...)
}
