package memstore

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/onward-go/outbox/persistence"
)

// EnsurePartitions implements [persistence.OutboxRetention]. There are no
// partitions to make.
func (s *Store) EnsurePartitions(ctx context.Context, months int, options persistence.RetentionOptions) (persistence.RetentionReport, error) {
	err := s.checkRetention(ctx, options)
	if err == nil {
		err = persistence.CheckMonths(months)
	}
	if err != nil {
		return persistence.RetentionReport{}, err
	}
	return persistence.RetentionReport{Now: now()}, nil
}

// DropPartitionsBefore implements [persistence.OutboxRetention]: it forgets the
// events that are older than the time, and their markers.
func (s *Store) DropPartitionsBefore(ctx context.Context, before time.Time, options persistence.RetentionOptions) (persistence.RetentionReport, error) {
	if err := s.checkRetention(ctx, options); err != nil {
		return persistence.RetentionReport{}, err
	}
	if err := s.lock(ctx); err != nil {
		return persistence.RetentionReport{}, err
	}
	defer s.mu.Unlock()
	report := persistence.RetentionReport{Now: now()}
	if kept := report.Now.Add(-persistence.AuditWindow); before.After(kept) {
		before = kept
	}
	before, owed := s.settledBefore(before, options)
	n := s.search(persistence.Cursor{CreatedTime: before})
	if n == 0 {
		return report, owed
	}
	report.Dropped = []persistence.Partition{{Table: tableName, To: before}}
	if !options.DryRun {
		s.rows = append([]persistence.Record(nil), s.rows[n:]...)
		s.markers.forget(func(k persistence.Marker) bool { return k.Event.CreatedTime.Before(before) })
	}
	return report, owed
}

// settledBefore returns the latest time, up to the one given, before which
// nothing is owed, and an error if it is earlier.
func (s *Store) settledBefore(before time.Time, options persistence.RetentionOptions) (time.Time, error) {
	due := s.rows[:s.search(persistence.Cursor{CreatedTime: before})]
	if len(s.sidecars) == 0 && len(due) > 0 && !options.NoConsumers {
		return time.Time{}, fmt.Errorf("memstore: no dispatcher has read the events that are due (%d): %w: say NoConsumers if there is none", len(due), persistence.ErrOwed)
	}
	var err error
	owed := func(after persistence.Cursor, problem func(event persistence.Cursor) error) {
		i := s.search(after)
		if i < len(due) && due[i].CreatedTime.Before(before) {
			before, err = due[i].CreatedTime, problem(due[i].Cursor())
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.sidecars)) {
		owed(s.sidecars[name].cursor, func(event persistence.Cursor) error {
			return fmt.Errorf("memstore: dispatcher %q has not settled event %s: %w", name, event, persistence.ErrOwed)
		})
	}
	for _, sub := range s.listSubscriptions() {
		if sub.Behind == nil {
			continue
		}
		owed(*sub.Behind, func(event persistence.Cursor) error {
			return fmt.Errorf("memstore: handler %q of event type %q, dispatcher %q, is behind and may not have seen event %s: %w: deploy the handler again, or wait until it is forgotten",
				sub.Handler, sub.EventType, sub.Dispatcher, event, persistence.ErrOwed)
		})
	}
	return before, err
}

func (s *Store) checkRetention(ctx context.Context, options persistence.RetentionOptions) error {
	if persistence.InTransaction(ctx) {
		return fmt.Errorf("memstore: retention: %w", persistence.ErrInTransaction)
	}
	return options.Check()
}
