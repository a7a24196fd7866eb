package sqlstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/onward-go/outbox/persistence"
)

// partition is one of a table's, as the catalog describes it.
type partition struct {
	persistence.Partition
	sql       string // its name as statements have it
	detaching bool   // PostgreSQL: a DETACH CONCURRENTLY has not ended
}

// listPartitions returns the partitions of a table in their order.
func (s *Store) listPartitions(ctx context.Context, conn Conn, t table) ([]partition, error) {
	var all []partition
	err := conn.Query(ctx, s.sql.ListPartitions, []any{t.sql}, func(scan func(...any) error) error {
		p := partition{Partition: persistence.Partition{Table: t.name}}
		var isDefault bool
		if err := scan(&p.Name, &p.sql, timestamp{&p.From}, timestamp{&p.To}, &p.detaching, &isDefault); err != nil {
			return err
		}
		if isDefault {
			return fmt.Errorf("%w: %s is a DEFAULT partition, beside which no month can be made and none dropped without a lock; detach it", persistence.ErrSchema, p.Name)
		}
		all = append(all, p)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list partitions: %w", err)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%w: table %s has no partitions", persistence.ErrSchema, t.name)
	}
	slices.SortFunc(all, func(a, b partition) int {
		return cmp.Or(compareEnds(a.To, b.To), a.From.Compare(b.From))
	})
	for i := 1; i < len(all); i++ {
		if all[i].From.IsZero() { // where only ends are kept
			all[i].From = all[i-1].To
		}
	}
	return all, nil
}

// compareEnds orders ends; the zero time has none.
func compareEnds(a, b time.Time) int {
	if a.IsZero() != b.IsZero() {
		if a.IsZero() {
			return 1
		}
		return -1
	}
	return a.Compare(b)
}

// endedBefore returns the partitions that end at or before the time.
func (s *Store) endedBefore(ctx context.Context, conn Conn, t table, before time.Time) ([]partition, error) {
	all, err := s.listPartitions(ctx, conn, t)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(p partition) bool { return p.To.IsZero() || p.To.After(before) || p.detaching }), nil
}

// extension is what has to be put before the open-ended last partition, so that
// every month has its own.
type extension struct {
	last partition
	used bool // the last one holds rows, which become the first of made
	made []partition
}

// missing returns what is missing up to the given number of months after now.
func (s *Store) missing(ctx context.Context, conn Conn, t table, now time.Time, months int) (extension, error) {
	existing, err := s.listPartitions(ctx, conn, t)
	if err != nil {
		return extension{}, err
	}
	e := extension{last: existing[len(existing)-1]}
	if !e.last.To.IsZero() {
		return e, fmt.Errorf("%w: the last partition of %s, %s, is not open-ended; add one (TO (MAXVALUE), LESS THAN MAXVALUE)", persistence.ErrSchema, t.name, e.last.Name)
	}
	if !e.last.From.Before(startOfMonth(now, months+1)) {
		return e, nil
	}
	var newest time.Time
	err = conn.Query(ctx, fill(s.sql.LastStamp, t, e.last), nil, func(scan func(...any) error) error {
		return scan(timestamp{&newest})
	})
	if err != nil {
		return e, fmt.Errorf("look into %s: %w", e.last.Name, err)
	}
	e.used = !newest.IsZero()
	for _, r := range planMonths(e.last.From, newest, now, months) {
		r.Table = t.name
		if s.cfg.Dialect.partitionsAreTables {
			r.Name = t.bare + "_" + r.Name
		}
		e.made = append(e.made, partition{Partition: r})
	}
	return e, nil
}

// planMonths divides the time from the start of the last partition, up to the
// given number of months after now. What the last partition holds already, or
// what is past, becomes one range, so that no row has to move.
func planMonths(from, newest, now time.Time, months int) []persistence.Partition {
	var plan []persistence.Partition
	through := startOfMonth(now, months+1)
	to := startOfMonth(from, 1)
	if past := startOfMonth(now, 0); from.Before(past) {
		to = startOfMonth(now, 1)
	}
	if !newest.IsZero() && !newest.Before(to) {
		to = startOfMonth(newest, 1)
	}
	for ; from.Before(through); from, to = to, startOfMonth(to, 1) {
		plan = append(plan, persistence.Partition{Name: partitionName(from, to), From: from, To: to})
	}
	return plan
}

// startOfMonth returns the start of the month that is months after t's.
func startOfMonth(t time.Time, months int) time.Time {
	t = t.UTC()
	return time.Date(t.Year(), t.Month()+time.Month(months), 1, 0, 0, 0, 0, time.UTC)
}

// partitionName names a partition after its first month.
func partitionName(from, to time.Time) string {
	switch {
	case from.IsZero():
		return to.AddDate(0, 0, -1).Format("p2006_01")
	case from.Day() != 1:
		return from.Format("p2006_01_02")
	}
	return from.Format("p2006_01")
}

// fill puts table and partition into a statement that takes no arguments for
// them. <partition> is one that the catalog knows, <name> one to be made.
// Bounds are UTC.
func fill(statement string, t table, p partition) string {
	return strings.NewReplacer(
		"<table>", t.sql, "<bare>", t.bare, "<partition>", p.sql, "<name>", strings.ReplaceAll(p.Name, `"`, `""`),
		"<from>", p.From.Format(time.DateTime), "<to>", p.To.Format(time.DateTime),
	).Replace(statement)
}
