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

// extension is what has to be made, so that every month has its own partition.
type extension struct {
	last  partition   // the open-ended one
	bound time.Time   // an end that a run which was cut off has given it, or zero
	holes []partition // what somebody has detached or dropped, of this month and later
	made  []partition // what is to be put before the last one, whose rows become the first
}

func (e extension) all() []partition { return slices.Concat(e.holes, e.made) }

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
	if e.bound, err = s.boundOf(ctx, conn, e.last); err != nil {
		return e, err
	}
	plan := planHoles(existing, now)
	holes := len(plan)
	if e.last.From.Before(startOfMonth(now, months+1)) {
		var newest time.Time
		err = conn.Query(ctx, fill(s.sql.LastStamp, t, e.last), nil, func(scan func(...any) error) error {
			return scan(timestamp{&newest})
		})
		if err != nil {
			return e, fmt.Errorf("look into %s: %w", e.last.Name, err)
		}
		plan = append(plan, planMonths(e.last.From, newest, e.bound, now, months)...)
	}
	taken := map[string]bool{}
	for _, p := range existing {
		taken[strings.ToLower(p.Name)] = true
	}
	for i, r := range plan {
		r.Table = t.name
		if r.Name, err = s.freeName(ctx, conn, t, r.Name, taken); err != nil {
			return e, err
		}
		if p := (partition{Partition: r}); i < holes {
			e.holes = append(e.holes, p)
		} else {
			e.made = append(e.made, p)
		}
	}
	return e, nil
}

// freeName returns a name for a new partition. Somebody may have kept the table of a
// partition that he has detached; bounds are never read from names.
func (s *Store) freeName(ctx context.Context, conn Conn, t table, month string, taken map[string]bool) (string, error) {
	if s.cfg.Dialect.partitionsAreTables {
		month = t.bare + "_" + month
	}
	name := month
	for n := 2; ; n++ {
		is := taken[strings.ToLower(name)]
		if !is && s.sql.TakenNames != "" {
			var err error
			if is, err = exists(ctx, conn, s.sql.TakenNames, t.sql, name); err != nil {
				return "", fmt.Errorf("look for a name: %w", err)
			}
		}
		if !is {
			taken[strings.ToLower(name)] = true
			return name, nil
		}
		name = fmt.Sprintf("%s_%d", month, n)
	}
}

// planHoles returns months from this one on that no partition covers.
func planHoles(existing []partition, now time.Time) (plan []persistence.Partition) {
	for i := 1; i < len(existing); i++ {
		from, to := existing[i-1].To, existing[i].From
		if now := startOfMonth(now, 0); from.Before(now) {
			from = now
		}
		for from.Before(to) {
			end := startOfMonth(from, 1)
			if end.After(to) {
				end = to
			}
			plan = append(plan, persistence.Partition{Name: partitionName(from, end), From: from, To: end})
			from = end
		}
	}
	return plan
}

// planMonths divides the time from the start of the last partition, up to the
// given number of months after now. What the last partition holds already, or
// what is past, becomes one range, so that no row has to move. If it has been given an
// end, that is the range's, unless it holds something later.
func planMonths(from, newest, bound, now time.Time, months int) []persistence.Partition {
	var plan []persistence.Partition
	through := startOfMonth(now, months+1)
	to := startOfMonth(from, 1)
	if past := startOfMonth(now, 0); from.Before(past) {
		to = startOfMonth(now, 1)
	}
	if !newest.IsZero() && !newest.Before(to) {
		to = startOfMonth(newest, 1)
	}
	if bound.After(from) && bound.After(newest) {
		to = bound
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
