package sqlstore

import (
	"context"
	"errors"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/onward-go/outbox/persistence"
)

// mysqlPartitions makes and drops partitions with one ALTER TABLE each, which
// is atomic by itself and commits by itself. It runs in a session that is
// discarded, since it changes the session's settings and holds a lock there.
type mysqlPartitions struct{}

// extend divides the open-ended partition. Rows that are there already are
// copied, and publishers wait meanwhile; there are none in the usual case.
func (d mysqlPartitions) extend(ctx context.Context, s *Store, t table, now time.Time, months int, limit time.Duration) (made []partition, err error) {
	err = d.alter(ctx, s, t, limit, func(conn Conn) (string, error) {
		e, err := s.missing(ctx, conn, t, now, months)
		if made = e.made; err != nil || len(made) == 0 { // another replica was faster
			return "", err
		}
		var ranges strings.Builder
		for _, p := range made {
			ranges.WriteString(fill(s.sql.PartitionRange, t, p))
		}
		return strings.ReplaceAll(fill(s.sql.ExtendPartitions, t, e.last), "<ranges>", ranges.String()), nil
	})
	if err != nil {
		return nil, err
	}
	return made, nil
}

func (d mysqlPartitions) drop(ctx context.Context, s *Store, t table, p partition, limit time.Duration) (dropped bool, err error) {
	err = d.alter(ctx, s, t, limit, func(conn Conn) (string, error) {
		existing, err := s.listPartitions(ctx, conn, t)
		dropped = false
		for _, e := range existing {
			// By its bound, too: the name may be in use again.
			if e.Name == p.Name && e.To.Equal(p.To) {
				dropped = true
				return fill(s.sql.DropPartition, t, e), err
			}
		}
		return "", err
	})
	if mysqlNumber(err) != 0 && !errors.Is(err, persistence.ErrLockTimeout) && !s.cfg.Dialect.lacksPrivilege(err) {
		err = partitionError{err}
	}
	return dropped && err == nil, err
}

// recover has nothing to do: an ALTER TABLE has happened, or it has not.
func (mysqlPartitions) recover(context.Context, *Store, table, time.Duration) error { return nil }

func (mysqlPartitions) unbound(context.Context, *Store, table, time.Duration) error { return nil }

// alter runs the statement that next returns, if any, one replica at a time.
func (d mysqlPartitions) alter(ctx context.Context, s *Store, t table, limit time.Duration, next func(Conn) (string, error)) (err error) {
	session, err := s.cfg.Session(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, session.Close()) }()
	conn := s.wrapped(session)
	if err := lock(ctx, conn, s.sql.LockMigrations); err != nil {
		return err
	}
	var id int64
	if err := conn.Query(ctx, s.sql.SessionID, nil, func(scan func(...any) error) error { return scan(&id) }); err != nil {
		return err
	}
	return s.patiently(ctx, conn, limit, func(wait time.Duration) error {
		statement, err := next(conn)
		if err != nil || statement == "" {
			return err
		}
		if _, err := conn.Exec(ctx, s.sql.LimitLockWait, int64(math.Ceil(wait.Seconds()))); err != nil {
			return err
		}
		// The server counts in seconds. To wait for less, another connection
		// interrupts the statement, if the pool has one to spare and it waits
		// rather than works.
		interrupt, cancel := context.WithCancel(ctx)
		interrupted := make(chan struct{})
		timer := time.AfterFunc(wait, func() {
			defer close(interrupted)
			// Without it the server's own limit ends the wait.
			if waits, err := exists(interrupt, s.cfg.Pool, s.sql.WaitsForTable, id); err == nil && waits {
				_, _ = s.cfg.Pool.Exec(interrupt, strings.ReplaceAll(s.sql.Interrupt, "<session>", strconv.FormatInt(id, 10)))
			}
		})
		_, err = conn.Exec(ctx, statement)
		cancel()
		if !timer.Stop() {
			<-interrupted // lest it hit a later statement
		}
		return err
	}, t.sql)
}
