package sqlstore

import (
	"context"
	"slices"

	"github.com/onward-go/outbox/persistence"
)

// MariaDB makes a read view by walking over the active transactions while they
// go on. So it may, rarely, take one for active that has committed, and see what
// another committed after it: an aggregate's later event without its earlier
// one. But whatever was committed before something that this view saw, the next
// view does see.

// tearsViews reports whether a statement may see a later commit and miss an
// earlier one.
func (p product) tearsViews() bool { return p.name == mariaDB }

// readMissed returns the keys, up to the last row that the first statement has
// returned, that only a second one sees.
func (s *Store) readMissed(ctx context.Context, conn Conn, read persistence.WindowRead, late, found []persistence.Record) ([]persistence.Record, error) {
	returned := map[persistence.Cursor]bool{}
	var last persistence.Cursor
	for _, r := range slices.Concat(late, found) {
		returned[r.Cursor()] = true
		if r.Cursor().Compare(last) > 0 {
			last = r.Cursor()
		}
	}
	if len(returned) == 0 {
		return nil, nil
	}
	edge, count := read.Edge(), read.Count
	for _, r := range late {
		if r.Cursor().Compare(read.Counted) <= 0 {
			count++
		}
	}
	missed, _, err := s.readSnapshot(ctx, conn, persistence.WindowRead{
		After:    read.After,
		Counted:  read.Counted,
		Count:    count,
		Frontier: last,
		Known: func(c persistence.Cursor) bool {
			return returned[c] || read.Known != nil && c.Compare(edge) <= 0 && read.Known(c)
		},
	})
	return missed, err
}

// mend keeps, of the records that were missed, those that have a later one of
// their aggregate among the others. The rest is left for the next read: what
// came before it may still be missing.
func mend(records, missed []persistence.Record, read persistence.WindowRead) []persistence.Record {
	type aggregate struct{ account, kind, id string }
	late := map[persistence.Cursor]bool{}
	for _, r := range missed {
		late[r.Cursor()] = true
	}
	followed := map[aggregate]bool{}
	mended := make([]persistence.Record, 0, len(records))
	for _, r := range slices.Backward(records) {
		of := aggregate{r.AccountID, r.AggregateType, r.AggregateID}
		if !late[r.Cursor()] {
			followed[of] = true
		}
		if followed[of] {
			mended = append(mended, r)
		}
	}
	slices.Reverse(mended)
	// They count as new, too.
	edge := read.Edge()
	fresh := slices.IndexFunc(mended, func(r persistence.Record) bool { return r.Cursor().Compare(edge) > 0 })
	if fresh >= 0 {
		mended = mended[:min(len(mended), fresh+read.Limit)]
	}
	return mended
}
