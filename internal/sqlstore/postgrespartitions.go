package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/onward-go/outbox/persistence"
)

// postgresPartitions makes partitions in one short transaction, and drops them
// without one: DETACH CONCURRENTLY lets nobody wait.
type postgresPartitions struct{}

// boundAhead is how far ahead a bound has to lie that refuses the events after
// it until it is the end of a partition.
const boundAhead = 7 * 24 * time.Hour

// extend replaces the open-ended partition. What it holds becomes the first of
// the new ones.
func (d postgresPartitions) extend(ctx context.Context, s *Store, t table, now time.Time, months int, limit time.Duration) (made []partition, err error) {
	attempt := func(wait time.Duration) error {
		made, err = d.replaceLast(ctx, s, t, now, months, wait, limit)
		return err
	}
	err = s.patiently(ctx, s.cfg.Pool, t, limit, attempt)
	if sqlState(err) != "57014" { // a statement took longer than others should wait
		return made, err
	}
	// The open-ended partition has grown large, and PostgreSQL looks at each
	// of its rows, whether it fits the new end. So it does that beforehand,
	// while the others go on.
	now = now.Add(boundAhead)
	last, err := d.boundLast(ctx, s, t, now, months, limit)
	if err != nil {
		return nil, fmt.Errorf("give %s an end: %w", last.Name, err)
	}
	if err := s.patiently(ctx, s.cfg.Pool, t, limit, attempt); err != nil {
		_, unboundErr := s.cfg.Pool.Exec(context.WithoutCancel(ctx), fill(s.sql.UnboundPartition, t, last))
		return nil, errors.Join(err, unboundErr)
	}
	return made, nil
}

// replaceLast is the transaction.
func (d postgresPartitions) replaceLast(ctx context.Context, s *Store, t table, now time.Time, months int, wait, limit time.Duration) (made []partition, err error) {
	err = s.transaction(ctx, func(ctx context.Context, conn Conn) error {
		if err := d.setLocal(ctx, s, conn, "lock_timeout", wait); err != nil {
			return err
		}
		if _, err := conn.Exec(ctx, fill(s.sql.LockTable, t, partition{})); err != nil {
			return err
		}
		e, err := s.missing(ctx, conn, t, now, months)
		if made = e.made; err != nil || len(made) == 0 { // another replica was faster
			return err
		}
		if err := d.setLocal(ctx, s, conn, "statement_timeout", limit); err != nil {
			return err
		}
		for _, statement := range d.replacement(s, t, e) {
			if _, err := conn.Exec(ctx, statement); err != nil {
				return fmt.Errorf("%s: %w", statement, err)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return made, nil
}

// replacement returns the statements that put an extension in the place of the
// open-ended partition.
func (postgresPartitions) replacement(s *Store, t table, e extension) []string {
	statements := []string{fill(s.sql.DetachPartition, t, e.last)}
	fresh := e.made
	if e.used {
		closed := e.made[0]
		closed.sql = e.last.sql
		statements = append(statements,
			fill(s.sql.RenamePartition, t, closed),
			fill(s.sql.AttachPartition, t, closed),
			fill(s.sql.UnboundAttached, t, closed))
		fresh = e.made[1:]
	} else {
		statements = append(statements, fill(s.sql.DropTable, t, e.last))
	}
	for _, p := range fresh {
		statements = append(statements, fill(s.sql.CreatePartition, t, p))
	}
	open := e.last
	open.From = e.made[len(e.made)-1].To
	return append(statements, fill(s.sql.CreateLast, t, open))
}

func (postgresPartitions) setLocal(ctx context.Context, s *Store, conn Conn, setting string, d time.Duration) error {
	_, err := conn.Exec(ctx, s.sql.SetLocal, setting, strconv.FormatInt(d.Milliseconds(), 10))
	return err
}

// boundLast gives the open-ended partition a validated end, without waiting for
// the rows to be looked at while it holds a lock.
func (d postgresPartitions) boundLast(ctx context.Context, s *Store, t table, now time.Time, months int, limit time.Duration) (partition, error) {
	var last partition
	err := s.patiently(ctx, s.cfg.Pool, t, limit, func(wait time.Duration) error {
		return s.transaction(ctx, func(ctx context.Context, conn Conn) error {
			if err := d.setLocal(ctx, s, conn, "lock_timeout", wait); err != nil {
				return err
			}
			e, err := s.missing(ctx, conn, t, now, months)
			if last = e.last; err != nil || len(e.made) == 0 {
				return err
			}
			last.To = e.made[0].To
			_, err = conn.Exec(ctx, fill(s.sql.BoundPartition, t, last))
			return err
		})
	})
	if err != nil || last.To.IsZero() { // another replica was faster
		return last, err
	}
	_, err = s.cfg.Pool.Exec(ctx, fill(s.sql.ValidateBound, t, last))
	return last, err
}

// drop detaches the partition and drops the table that it is then. The mark
// tells a later run that it is not somebody's archive.
func (d postgresPartitions) drop(ctx context.Context, s *Store, t table, p partition, limit time.Duration) (bool, error) {
	pool := s.cfg.Pool
	_, err := pool.Exec(ctx, fill(s.sql.MarkDropped, t, p))
	if err == nil {
		err = d.detach(ctx, s, fill(s.sql.DetachConcurrent, t, p), limit)
	}
	if err == nil {
		return true, d.dropDetached(ctx, s, t, p, limit)
	}
	remaining, listErr := s.listPartitions(ctx, pool, t)
	if listErr != nil {
		return false, errors.Join(err, listErr)
	}
	for _, r := range remaining {
		switch {
		case r.Name != p.Name:
		case r.detaching || s.cfg.Dialect.isRace(err): // whoever comes next ends it
			return false, err
		default:
			_, unmarkErr := pool.Exec(context.WithoutCancel(ctx), fill(s.sql.UnmarkDropped, t, p))
			return false, errors.Join(err, unmarkErr)
		}
	}
	// Another replica was faster, or the answer was lost.
	return false, d.dropDetached(ctx, s, t, p, limit)
}

// recover ends detaches that were interrupted: until then the partition's range
// takes no rows. What retention had marked is dropped.
func (d postgresPartitions) recover(ctx context.Context, s *Store, t table, limit time.Duration) ([]partition, error) {
	all, err := s.listPartitions(ctx, s.cfg.Pool, t)
	if err != nil {
		return nil, err
	}
	bounds := map[string]partition{}
	for _, p := range all {
		bounds[p.Name] = p
	}
	if slices.ContainsFunc(all, isDetaching) {
		// It may be another replica that is at it, rather than one that has
		// crashed.
		if err := pause(ctx, apart); err != nil {
			return nil, err
		}
		if all, err = s.listPartitions(ctx, s.cfg.Pool, t); err != nil {
			return nil, err
		}
	}
	for _, p := range all {
		if !p.detaching {
			continue
		}
		if err := d.detach(ctx, s, fill(s.sql.FinishDetach, t, p), limit); err != nil {
			return nil, fmt.Errorf("end the detach of partition %s: %w", p.Name, err)
		}
	}
	var dropped []partition
	err = s.cfg.Pool.Query(ctx, s.sql.ListDetached, []any{t.sql}, func(scan func(...any) error) error {
		p := partition{Partition: persistence.Partition{Table: t.name}}
		err := scan(&p.Name, &p.sql)
		if known, ok := bounds[p.Name]; ok {
			p = known
		}
		dropped = append(dropped, p)
		return err
	})
	if err != nil {
		return nil, err
	}
	for i, p := range dropped {
		if err := d.dropDetached(ctx, s, t, p, limit); err != nil {
			return dropped[:i], err
		}
	}
	return dropped, nil
}

func isDetaching(p partition) bool { return p.detaching }

// detach waits until every transaction that may still use the partition has
// ended; nobody waits for it meanwhile.
func (postgresPartitions) detach(ctx context.Context, s *Store, statement string, limit time.Duration) error {
	patience, cancel := context.WithTimeout(ctx, detachPatience*limit)
	defer cancel()
	_, err := s.cfg.Pool.Exec(patience, statement)
	if err != nil && patience.Err() != nil && ctx.Err() == nil {
		return fmt.Errorf("%w: a long query or an open transaction uses the outbox; the next run ends the detach: %w", persistence.ErrLockTimeout, err)
	}
	return err
}

// detachPatience is how many lock timeouts a detach may take.
const detachPatience = 10

// dropDetached drops a table that was a partition.
func (d postgresPartitions) dropDetached(ctx context.Context, s *Store, t table, p partition, limit time.Duration) error {
	return s.transaction(ctx, func(ctx context.Context, conn Conn) error {
		if err := d.setLocal(ctx, s, conn, "lock_timeout", limit); err != nil {
			return err
		}
		_, err := conn.Exec(ctx, fill(s.sql.DropTable, t, p))
		if s.cfg.Dialect.isLockTimeout(err) {
			return fmt.Errorf("%w: somebody reads table %s; the next run drops it: %w", persistence.ErrLockTimeout, p.Name, err)
		}
		return err
	})
}
