package sqlstore

import (
	"context"
	"slices"
	"time"

	"github.com/onward-go/outbox/persistence"
)

// Save implements persistence.OutboxCursorStore. Who stands still between two
// statements must not stand on the lease's row, so each is a transaction of its
// own, and fences itself. The cursor comes last: what it passes is saved.
func (s *Store) Save(ctx context.Context, lease persistence.Lease, progress persistence.Progress) error {
	conn, err := s.pool(ctx, writing)
	if err != nil {
		return err
	}
	if err := s.saveBefore(ctx, conn, lease, progress); err != nil {
		return err
	}
	if len(progress.CaughtUp) == 0 {
		return s.saveCursor(ctx, conn, lease, progress)
	}
	return s.sidecar(ctx, func(ctx context.Context, conn Conn) error {
		return s.saveCaughtUp(ctx, conn, lease, progress)
	})
}

// saveCaughtUp saves the cursor, and where subscriptions have come to.
func (s *Store) saveCaughtUp(ctx context.Context, conn Conn, lease persistence.Lease, progress persistence.Progress) error {
	// The fence, and the lock, of what follows.
	if err := s.saveCursor(ctx, conn, lease, progress); err != nil || len(progress.CaughtUp) == 0 {
		return err
	}
	err := s.catchUp(ctx, conn, lease.Dispatcher, progress)
	return s.failed(err, "dispatcher %q: catch up to %s", lease.Dispatcher, progress.Cursor)
}

func (s *Store) saveCursor(ctx context.Context, conn Conn, lease persistence.Lease, progress persistence.Progress) error {
	to := progress.Cursor
	n, err := conn.Exec(ctx, s.sql.SaveCursor, s.fence(lease, s.at(to.CreatedTime), to.ID, progress.Count, progress.Offsets.Micros, progress.Offsets.Rows)...)
	return s.fenced(lease, n, err, "save the cursor at "+to.String())
}

// saveBefore writes what goes before the cursor. Without the lease it writes
// nothing, and leaves it to the cursor to say so.
func (s *Store) saveBefore(ctx context.Context, conn Conn, lease persistence.Lease, progress persistence.Progress) (err error) {
	defer func() {
		err = s.failed(err, "dispatcher %q: save the progress to %s", lease.Dispatcher, progress.Cursor)
	}()
	for page := range slices.Chunk(progress.Settled, mostKeys) {
		keys, err := encodeMarkers(page)
		if err != nil {
			return err
		}
		if _, err := conn.Exec(ctx, s.sql.SettleAttempts, s.fence(lease, keys)...); err != nil {
			return err
		}
	}
	for page := range slices.Chunk(progress.Counts, mostKeys) {
		buckets, err := encodeBuckets(page)
		if err != nil {
			return err
		}
		if _, err := conn.Exec(ctx, s.sql.SaveCounts, s.fence(lease, buckets)...); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) catchUp(ctx context.Context, conn Conn, dispatcher string, progress persistence.Progress) error {
	state, _, err := s.loadCursor(ctx, conn, dispatcher)
	if err != nil {
		return err
	}
	caughtUp := setOf(progress.CaughtUp)
	return s.moveSubscriptions(ctx, conn, dispatcher, func(sub *persistence.SubscriptionState) bool {
		return caughtUp[sub.Subscription] && sub.CatchUp(progress.Cursor, state.Cursor)
	})
}

// Counts implements persistence.OutboxCursorStore.
func (s *Store) Counts(ctx context.Context, dispatcher string, from, to time.Time) ([]persistence.Bucket, error) {
	conn, err := s.pool(ctx, reading)
	if err != nil {
		return nil, err
	}
	var buckets []persistence.Bucket
	err = conn.Query(ctx, s.sql.LoadCounts, []any{dispatcher, s.at(from), s.at(to)}, func(scan func(...any) error) error {
		var b persistence.Bucket
		err := scan(timestamp{&b.Start}, &b.Rows, &b.Offsets.Micros, &b.Offsets.Rows)
		buckets = append(buckets, b)
		return err
	})
	return buckets, s.failed(err, "read the counts of dispatcher %q", dispatcher)
}

// RecordFailure implements persistence.OutboxCursorStore.
func (s *Store) RecordFailure(ctx context.Context, lease persistence.Lease, failure persistence.Failure) (persistence.Attempt, error) {
	conn, err := s.pool(ctx, writing)
	if err != nil {
		return persistence.Attempt{}, err
	}
	number := failure.Number()
	at, id := s.at(failure.Event.CreatedTime), failure.Event.ID
	n, err := conn.Exec(ctx, s.sql.RecordFailure, s.fence(lease, at, id,
		failure.Handler, number, failure.Error, failure.RetryAfter.Microseconds())...)
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
