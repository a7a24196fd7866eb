package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/onward-go/outbox/persistence"
)

// partitioning is how a kind of database keeps partitions. Its methods let
// nobody wait for longer than the lock timeout at a time, and may find that
// another replica has been faster.
type partitioning interface {
	// extend puts months before the open-ended last partition and returns what
	// it has made.
	extend(ctx context.Context, s *Store, t table, now time.Time, months int, lockTimeout time.Duration) ([]partition, error)
	// recover ends what an earlier run, or somebody else, has left in the middle.
	recover(ctx context.Context, s *Store, t table, lockTimeout time.Duration) error
	// unbound takes back an end that an earlier run has given the last partition.
	unbound(ctx context.Context, s *Store, t table, lockTimeout time.Duration) error
	// drop drops a partition. It reports whether it did; otherwise somebody
	// else has. A partitionError says that it is this one alone that cannot be
	// dropped.
	drop(ctx context.Context, s *Store, t table, p partition, lockTimeout time.Duration) (bool, error)
}

// partitionError is an error of one partition, beside which others can be dropped.
type partitionError struct{ error }

func (e partitionError) Unwrap() error { return e.error }

// table is a partitioned table: its name for messages, without its schema, and
// as statements have it.
type table struct{ name, bare, sql string }

func (s *Store) outboxTable() table {
	return table{s.table, s.cfg.Naming.Prefix + "outbox", s.sql.OutboxTable}
}

func (s *Store) markerTable() table {
	return table{s.table + "_idempotency", s.cfg.Naming.Prefix + "outbox_idempotency", s.sql.MarkerTable}
}

// EnsurePartitions implements persistence.OutboxRetention.
func (s *Store) EnsurePartitions(ctx context.Context, months int, options persistence.RetentionOptions) (persistence.RetentionReport, error) {
	var report persistence.RetentionReport
	conn, err := s.retentionPool(ctx, options)
	if err == nil {
		err = persistence.CheckMonths(months)
	}
	if err != nil {
		return report, err
	}
	m, err := s.safeMark(ctx, conn)
	if err != nil {
		return report, s.failed(err, "ensure partitions")
	}
	report.Now = m.Now
	if s.cfg.Dialect.partitions == nil {
		return report, nil
	}
	// Markers first: an event must not have a place before its markers do.
	for _, t := range []table{s.markerTable(), s.outboxTable()} {
		err := s.calmly(ctx, func() error {
			made, err := s.extend(ctx, conn, t, m.Now, months, options)
			for _, p := range made {
				report.Created = append(report.Created, p.Partition)
			}
			return err
		})
		if err != nil {
			return report, s.failed(err, "make partitions of %s", t.name)
		}
	}
	return report, nil
}

func (s *Store) extend(ctx context.Context, conn Conn, t table, now time.Time, months int, options persistence.RetentionOptions) ([]partition, error) {
	recoverErr := s.recover(ctx, t, options)
	e, err := s.missing(ctx, conn, t, now, months)
	made := e.all()
	switch {
	case err != nil || options.DryRun:
	case len(made) > 0:
		made, err = s.cfg.Dialect.partitions.extend(ctx, s, t, now, months, lockTimeout(options))
	case !e.bound.IsZero():
		err = s.cfg.Dialect.partitions.unbound(ctx, s, t, lockTimeout(options))
	}
	if err != nil {
		made = nil
	}
	return made, errors.Join(recoverErr, err)
}

func (s *Store) recover(ctx context.Context, t table, options persistence.RetentionOptions) error {
	if options.DryRun {
		return nil
	}
	return s.cfg.Dialect.partitions.recover(ctx, s, t, lockTimeout(options))
}

// DropPartitionsBefore implements persistence.OutboxRetention.
func (s *Store) DropPartitionsBefore(ctx context.Context, before time.Time, options persistence.RetentionOptions) (persistence.RetentionReport, error) {
	var report persistence.RetentionReport
	conn, err := s.retentionPool(ctx, options)
	if err != nil {
		return report, err
	}
	if s.cfg.Dialect.partitions == nil {
		report, err := s.forgetBefore(ctx, conn, before, options)
		return report, s.failed(err, "forget events")
	}
	before, report.Now, err = s.horizon(ctx, conn, before)
	if err != nil {
		return report, s.failed(err, "drop partitions")
	}
	err = s.calmly(ctx, func() error { return s.dropDue(ctx, conn, before, options, &report) })
	return report, err
}

func (s *Store) dropDue(ctx context.Context, conn Conn, before time.Time, options persistence.RetentionOptions, report *persistence.RetentionReport) error {
	var failed []error
	for _, t := range []table{s.outboxTable(), s.markerTable()} {
		err := s.recover(ctx, t, options)
		failed = append(failed, s.failed(err, "end an earlier run on %s", t.name))
	}
	// What keeps an event does not keep the markers of others.
	settled, err := s.dropEvents(ctx, conn, before, options, report)
	failed = append(failed, s.failed(err, "drop partitions of %s", s.table))
	err = s.dropMarkers(ctx, conn, before, settled, options, report)
	failed = append(failed, s.failed(err, "drop partitions of %s", s.markerTable().name))
	return errors.Join(failed...)
}

// dropEvents drops the partitions of the outbox that have ended before the time
// and hold nothing owed. It returns the end of the last one.
func (s *Store) dropEvents(ctx context.Context, conn Conn, before time.Time, options persistence.RetentionOptions, report *persistence.RetentionReport) (time.Time, error) {
	var end time.Time
	due, err := s.endedBefore(ctx, conn, s.outboxTable(), before)
	if err != nil || len(due) == 0 {
		return end, err
	}
	owed, err := s.firstOwed(ctx, conn, due[len(due)-1].To, options)
	if err != nil {
		return end, err
	}
	var failed []error
	for _, p := range due {
		if owed != nil && owed.at.Before(p.To) {
			failed = append(failed, fmt.Errorf("partition %s is kept: %w", p.Name, owed.err))
			break
		}
		err := s.dropPartition(ctx, s.outboxTable(), p, options, report)
		if failed = append(failed, err); err != nil && !concernsPartition(err) {
			break
		}
		end = p.To
	}
	return end, errors.Join(failed...)
}

// dropMarkers drops the partitions of the markers that have ended before the
// time and belong to no event that is left. settled is the end of what was
// dropped of the outbox.
func (s *Store) dropMarkers(ctx context.Context, conn Conn, before, settled time.Time, options persistence.RetentionOptions, report *persistence.RetentionReport) error {
	due, err := s.endedBefore(ctx, conn, s.markerTable(), before)
	if err != nil {
		return err
	}
	var failed []error
	for _, p := range due {
		start := persistence.Cursor{CreatedTime: p.From}
		if options.DryRun && settled.After(p.From) {
			start.CreatedTime = settled // what lies before it would be gone
		}
		if _, left, err := s.nextEvent(ctx, conn, start, p.To); err != nil {
			return errors.Join(append(failed, err)...)
		} else if left {
			continue
		}
		err := s.dropPartition(ctx, s.markerTable(), p, options, report)
		if failed = append(failed, err); err != nil && !concernsPartition(err) {
			break
		}
	}
	return errors.Join(failed...)
}

// concernsPartition reports whether it is one partition alone that cannot be dropped.
func concernsPartition(err error) bool {
	_, is := errors.AsType[partitionError](err)
	return is
}

func (s *Store) dropPartition(ctx context.Context, t table, p partition, options persistence.RetentionOptions, report *persistence.RetentionReport) error {
	dropped := true
	if !options.DryRun {
		var err error
		if dropped, err = s.cfg.Dialect.partitions.drop(ctx, s, t, p, lockTimeout(options)); err != nil {
			return fmt.Errorf("partition %s: %w", p.Name, err)
		}
	}
	if dropped {
		report.Dropped = append(report.Dropped, p.Partition)
	}
	return nil
}

// retentionPool returns the pool, unless ctx carries a transaction: DDL would
// commit it, or wait for it.
func (s *Store) retentionPool(ctx context.Context, options persistence.RetentionOptions) (Conn, error) {
	if s.cfg.Invalid != nil {
		return nil, s.cfg.Invalid
	}
	if persistence.InTransaction(ctx) {
		return nil, fmt.Errorf("outbox table %s: retention: %w: DDL has transactions of its own", s.table, persistence.ErrInTransaction)
	}
	if err := options.Check(); err != nil {
		return nil, s.failed(err, "retention")
	}
	conn, err := s.pool(ctx, writing)
	if err != nil {
		return nil, err
	}
	// It looks into partitions, and at what dispatchers remember.
	if err := s.checkTables(ctx, conn, ofPartition); err != nil {
		return nil, err
	}
	return conn, nil
}

func lockTimeout(options persistence.RetentionOptions) time.Duration {
	if options.LockTimeout == 0 {
		return persistence.DefaultLockTimeout
	}
	return options.LockTimeout
}
