package sqlstore

import (
	"cmp"
	"context"
	"time"

	"github.com/onward-go/outbox/persistence"
)

// forgetBatch bounds how long retention holds the write lock of a database
// without partitions.
const forgetBatch = 1000

// forgetBefore deletes the rows that are older than the time and not owed, and
// their markers.
func (s *Store) forgetBefore(ctx context.Context, pool Conn, before time.Time, options persistence.RetentionOptions) (persistence.RetentionReport, error) {
	var report persistence.RetentionReport
	var due bool
	var kept error
	// Whoever has the write lock knows that no producer is open.
	err := s.transaction(ctx, func(ctx context.Context, conn Conn) error {
		m, err := s.safeMark(ctx, conn)
		if err != nil {
			return err
		}
		report.Now = m.Now
		if limit := m.Now.Add(-persistence.AuditWindow); before.After(limit) {
			before = limit
		}
		if _, due, err = s.nextEvent(ctx, conn, persistence.Cursor{}, before); err != nil || !due {
			return err
		}
		owed, err := s.firstOwed(ctx, conn, before, options)
		if err != nil || owed == nil {
			return err
		}
		before, kept = owed.at, owed.err
		_, due, err = s.nextEvent(ctx, conn, persistence.Cursor{}, before)
		return err
	})
	if err != nil || !due {
		return report, cmp.Or(err, kept)
	}
	report.Dropped = []persistence.Partition{{Table: s.table, To: before}}
	if options.DryRun {
		return report, kept
	}
	// Events first: a marker must not go before its event.
	for _, statement := range []string{s.sql.ForgetEvents, s.sql.ForgetMarkers} {
		for n := int64(forgetBatch); n == forgetBatch; {
			if n, err = pool.Exec(ctx, statement, s.at(before), forgetBatch); err != nil {
				return report, err
			}
		}
	}
	return report, kept
}
