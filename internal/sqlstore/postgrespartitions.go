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

// postgresPartitions makes and drops partitions in short transactions that have the
// table to themselves. A run that is cut off has done such a step, or has not; and
// what is no partition any more was detached by somebody else, who wants to keep it.
type postgresPartitions struct{}

const (
	// boundAhead is how far ahead a bound has to lie that refuses the events after
	// it until it is the end of a partition. A process that is killed leaves it
	// until the next run.
	boundAhead = 31 * 24 * time.Hour
	// mostBounds is how often a run gives the open-ended partition an end, which
	// another run may take back.
	mostBounds = 3
	// unboundPatience is how long a run whose context has ended still tries to take
	// an end back.
	unboundPatience = 10 * time.Second
	// idleLimit is how long the server lets a transaction of retention stand idle
	// that has the table: its process has been stopped.
	idleLimit = 10 * time.Second
)

// extend replaces the open-ended partition. What it holds becomes the first of
// the new ones.
func (d postgresPartitions) extend(ctx context.Context, s *Store, t table, now time.Time, months int, limit time.Duration) (made []partition, err error) {
	attempt := func(wait time.Duration) error {
		made, err = d.replaceLast(ctx, s, t, now, months, wait, limit)
		return err
	}
	for bounds := 0; ; bounds++ {
		err = s.patiently(ctx, s.cfg.Pool, limit, attempt, t.sql)
		if sqlState(err) != "57014" || ctx.Err() != nil || bounds == mostBounds {
			break
		}
		// A statement took longer than others should wait: the open-ended
		// partition has grown large, and PostgreSQL looks at each of its rows,
		// whether it fits the new end. So it does that beforehand, while the
		// others go on.
		if err = d.boundLast(ctx, s, t, now.Add(boundAhead), months, limit); err != nil {
			err = fmt.Errorf("give the last partition of %s an end: %w", t.name, err)
			break
		}
	}
	if err != nil {
		return nil, errors.Join(d.remedy(ctx, s, partition{sql: t.sql}, err), d.unbound(ctx, s, t, limit))
	}
	return made, nil
}

// replaceLast makes what is missing.
func (d postgresPartitions) replaceLast(ctx context.Context, s *Store, t table, now time.Time, months int, wait, limit time.Duration) (made []partition, err error) {
	err = d.alone(ctx, s, t, wait, limit, func(ctx context.Context, conn Conn) error {
		e, err := s.missing(ctx, conn, t, now, months)
		if err != nil {
			return err
		}
		made = e.all() // none if another replica was faster
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

// replacement returns the statements that make an extension. The open-ended
// partition is never dropped, even where it is empty: views may depend on it.
func (postgresPartitions) replacement(s *Store, t table, e extension) (statements []string) {
	fresh := e.all()
	if len(e.made) > 0 {
		closed := e.made[0]
		closed.sql = e.last.sql
		statements = append(statements,
			fill(s.sql.DetachPartition, t, e.last),
			fill(s.sql.RenamePartition, t, closed),
			fill(s.sql.AttachPartition, t, closed),
			fill(s.sql.UnboundAttached, t, closed))
		fresh = slices.Concat(e.holes, e.made[1:])
	}
	for _, p := range fresh {
		statements = append(statements, fill(s.sql.CreatePartition, t, p))
	}
	if len(e.made) > 0 {
		open := e.last
		open.From = e.made[len(e.made)-1].To
		statements = append(statements, fill(s.sql.CreateLast, t, open))
	}
	return statements
}

// alone runs fn in a transaction that has the table to itself. It sees what the
// replica has done that had it before, whatever the session's isolation is.
func (postgresPartitions) alone(ctx context.Context, s *Store, t table, wait, limit time.Duration, fn func(ctx context.Context, conn Conn) error) error {
	return s.transaction(ctx, func(ctx context.Context, conn Conn) error {
		for _, step := range []struct {
			statement string
			args      []any
		}{
			{statement: s.sql.IsolateMigrations},
			{s.sql.LimitWaits, []any{millis(wait), millis(idleLimit)}},
			{statement: fill(s.sql.LockTable, t, partition{})},
			{s.sql.LimitStatements, []any{millis(limit)}},
		} {
			if _, err := conn.Exec(ctx, step.statement, step.args...); err != nil {
				return err
			}
		}
		return fn(ctx, conn)
	})
}

func millis(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// alter changes a single partition, for whose lock it waits no longer than it is told.
func (postgresPartitions) alter(ctx context.Context, s *Store, wait time.Duration, statement string) error {
	return s.transaction(ctx, func(ctx context.Context, conn Conn) error {
		if _, err := conn.Exec(ctx, s.sql.LimitWaits, millis(wait), millis(idleLimit)); err != nil {
			return err
		}
		_, err := conn.Exec(ctx, statement)
		return err
	})
}

// boundLast gives the open-ended partition a validated end, without waiting for
// the rows to be looked at while it holds a lock. An end that is there, from another
// replica or a run that was killed, serves as well.
func (d postgresPartitions) boundLast(ctx context.Context, s *Store, t table, now time.Time, months int, limit time.Duration) error {
	e, err := s.missing(ctx, s.cfg.Pool, t, now, months)
	if err != nil || len(e.made) == 0 { // another replica was faster
		return err
	}
	last := e.last
	if last.To = e.made[0].To; !last.To.Equal(e.bound) {
		err := s.patiently(ctx, s.cfg.Pool, limit, func(wait time.Duration) error {
			return d.alter(ctx, s, wait, fill(s.sql.BoundPartition, t, last))
		}, t.sql)
		if err != nil {
			return err
		}
	}
	_, err = s.cfg.Pool.Exec(ctx, fill(s.sql.ValidateBound, t, last))
	return err
}

// unbound takes the end of an open-ended partition back, if it has one, even if the
// context has ended: publishers are refused from there on.
func (d postgresPartitions) unbound(ctx context.Context, s *Store, t table, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), unboundPatience)
	defer cancel()
	all, err := s.listPartitions(ctx, s.cfg.Pool, t)
	if err != nil {
		return err
	}
	for _, p := range all {
		if !p.To.IsZero() {
			continue
		}
		bound, err := s.boundOf(ctx, s.cfg.Pool, p)
		if err == nil && !bound.IsZero() {
			err = s.patiently(ctx, s.cfg.Pool, limit, func(wait time.Duration) error {
				return d.alter(ctx, s, wait, fill(s.sql.UnboundPartition, t, p))
			}, p.sql)
		}
		if err != nil {
			return fmt.Errorf("take back the end of partition %s, from which on it refuses events; run retention again before: %w", p.Name, err)
		}
	}
	return nil
}

// drop detaches a partition and drops it, in one transaction. A foreign key that
// refers to the outbox lets none be dropped that is attached.
func (d postgresPartitions) drop(ctx context.Context, s *Store, t table, p partition, limit time.Duration) (dropped bool, err error) {
	err = s.patiently(ctx, s.cfg.Pool, limit, func(wait time.Duration) error {
		return d.alone(ctx, s, t, wait, limit, func(ctx context.Context, conn Conn) error {
			all, err := s.listPartitions(ctx, conn, t)
			// By its bounds, too: the name may be in use again.
			dropped = slices.ContainsFunc(all, func(e partition) bool {
				return e.sql == p.sql && !e.detaching && e.From.Equal(p.From) && e.To.Equal(p.To)
			})
			if err != nil || !dropped { // somebody else has dropped it
				return err
			}
			for _, statement := range []string{s.sql.DetachPartition, s.sql.DropTable} {
				if _, err := conn.Exec(ctx, fill(statement, t, p)); sqlState(err) != "" {
					return partitionError{err}
				} else if err != nil {
					return err
				}
			}
			return nil
		})
	}, t.sql, p.sql)
	if errors.Is(err, persistence.ErrLockTimeout) {
		// It is the partition that is locked, where the table is not.
		if held, holdersErr := s.holders(ctx, s.cfg.Pool, []string{t.sql}); holdersErr == nil && len(held) == 0 {
			err = partitionError{err}
		}
	}
	if err != nil {
		return false, d.remedy(ctx, s, p, err)
	}
	return dropped, nil
}

// remedy says what to do about a partition that cannot be detached or dropped.
func (postgresPartitions) remedy(ctx context.Context, s *Store, p partition, err error) error {
	switch sqlState(err) {
	case "2BP01": // something depends on it
		var found []string
		listErr := s.cfg.Pool.Query(ctx, s.sql.Dependents, []any{p.sql}, func(scan func(...any) error) error {
			var what string
			err := scan(&what)
			found = append(found, what)
			return err
		})
		return errors.Join(fmt.Errorf("%w; drop what depends on it, or detach the partition to keep it: %q", err, found), listErr)
	case "23503": // a foreign key refers to its events
		return fmt.Errorf("%w; delete the rows that refer to its events, or drop the foreign key", err)
	case "42501":
		return fmt.Errorf("%w; give the partition to the owner of the outbox", err)
	}
	return err
}

// recover ends what somebody has left in the middle. A detach that was cut off is
// ended, since until then the partition's range takes no rows; its table stays. A
// former release marks what it is about to drop, and drops what is marked once it is
// detached, whoever did that: so no partition keeps a mark.
func (d postgresPartitions) recover(ctx context.Context, s *Store, t table, limit time.Duration) error {
	all, err := s.listPartitions(ctx, s.cfg.Pool, t)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(all, isDetaching) {
		// It may be going on, rather than cut off.
		if err := pause(ctx, apart); err != nil {
			return err
		}
		if all, err = s.listPartitions(ctx, s.cfg.Pool, t); err != nil {
			return err
		}
	}
	var failed []error
	for _, p := range all {
		if !p.detaching {
			continue
		}
		if err := d.finishDetach(ctx, s, t, p, limit); err != nil {
			failed = append(failed, fmt.Errorf("end the detach of partition %s: %w", p.Name, err))
		}
	}
	marked, err := s.listMarked(ctx, s.cfg.Pool, t, true)
	if err != nil {
		failed = append(failed, err)
	}
	for _, p := range marked {
		err := s.patiently(ctx, s.cfg.Pool, limit, func(wait time.Duration) error {
			return d.alter(ctx, s, wait, fill(s.sql.UnmarkDropped, t, p))
		}, p.sql)
		if err != nil {
			failed = append(failed, fmt.Errorf("take back that partition %s is to be dropped: %w", p.Name, err))
		}
	}
	return errors.Join(failed...)
}

func isDetaching(p partition) bool { return p.detaching }

// finishDetach waits until every transaction that may still use the partition has
// ended; nobody waits for it meanwhile.
func (postgresPartitions) finishDetach(ctx context.Context, s *Store, t table, p partition, limit time.Duration) error {
	patience, cancel := context.WithTimeout(ctx, detachPatience*limit)
	defer cancel()
	_, err := s.cfg.Pool.Exec(patience, fill(s.sql.FinishDetach, t, p))
	if err != nil && patience.Err() != nil && ctx.Err() == nil {
		return fmt.Errorf("%w: a long query or an open transaction uses the outbox; the next run ends the detach: %w", persistence.ErrLockTimeout, err)
	}
	return err
}

// detachPatience is how many lock timeouts the end of a detach may take.
const detachPatience = 10

// listMarked returns the tables that a former release has marked to drop them: those
// that are partitions still, or those that are none any more.
func (s *Store) listMarked(ctx context.Context, conn Conn, t table, attached bool) (marked []partition, err error) {
	if s.sql.ListMarked == "" {
		return nil, nil
	}
	err = conn.Query(ctx, s.sql.ListMarked, []any{t.sql, attached}, func(scan func(...any) error) error {
		p := partition{Partition: persistence.Partition{Table: t.name}}
		err := scan(&p.Name, &p.sql)
		marked = append(marked, p)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list marked tables: %w", err)
	}
	return marked, nil
}

// boundOf returns the end that a run of retention has given a partition, and not
// taken back.
func (s *Store) boundOf(ctx context.Context, conn Conn, p partition) (bound time.Time, err error) {
	if s.sql.LastBound == "" {
		return bound, nil
	}
	err = conn.Query(ctx, s.sql.LastBound, []any{p.sql}, func(scan func(...any) error) error {
		return scan(timestamp{&bound})
	})
	if err != nil {
		return bound, fmt.Errorf("look for an end of %s: %w", p.Name, err)
	}
	return bound, nil
}
