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

// readMissed adds to what is late the positions, up to the end of the view, that
// only a second one shows, and tells which. What that one cannot return in one
// page ends the view.
func (s *Store) readMissed(ctx context.Context, conn Conn, read persistence.WindowRead, v *view, missed map[persistence.Cursor]bool) error {
	if len(v.late) == 0 && len(v.found) == 0 {
		return nil
	}
	returned := map[persistence.Cursor]bool{}
	count := read.Count
	for _, c := range v.late {
		returned[c] = true
		if c.Compare(read.Counted) <= 0 {
			count++
		}
	}
	for _, r := range v.found {
		returned[r.Cursor()] = true
	}
	again := persistence.WindowRead{
		After:      read.After,
		KnownCount: read.KnownCount + len(returned),
		Counted:    read.Counted,
		Count:      count,
		Frontier:   v.end,
		Known: func(c persistence.Cursor) bool {
			return returned[c] || read.Known != nil && c.Compare(read.Edge()) <= 0 && read.Known(c)
		},
		LateLimit: mostKeys,
		MaxBytes:  read.MaxBytes,
	}
	if again.Counted.Compare(again.Edge()) > 0 {
		again = uncounted(again)
	}
	second, err := s.readSnapshot(ctx, conn, again)
	if err != nil {
		return err
	}
	if second.end.Compare(v.end) < 0 {
		v.endAt(second.end)
	}
	for _, c := range second.late {
		missed[c] = true
	}
	v.late = append(v.late, second.late...)
	slices.SortFunc(v.late, persistence.Cursor.Compare)
	return nil
}

// mend keeps, of the records that were missed, those that have a later one of
// their aggregate among the others. The rest is left for the next read: what
// came before it may still be missing.
func (v *view) mend(missed map[persistence.Cursor]bool, read persistence.WindowRead) {
	type aggregate struct{ account, kind, id string }
	followed := map[aggregate]bool{}
	var left persistence.Cursor // the first that is left
	mended := make([]persistence.Record, 0, len(v.found))
	for _, r := range slices.Backward(v.found) {
		of := aggregate{r.AccountID, r.AggregateType, r.AggregateID}
		if !missed[r.Cursor()] {
			followed[of] = true
		}
		if followed[of] {
			mended = append(mended, r)
		} else {
			left = r.Cursor()
		}
	}
	slices.Reverse(mended)
	v.found = mended
	// They count as new, too.
	edge := read.Edge()
	fresh := slices.IndexFunc(mended, func(r persistence.Record) bool { return r.Cursor().Compare(edge) > 0 })
	if fresh >= 0 && fresh+read.Limit < len(mended) {
		v.cut(mended[fresh+read.Limit].Cursor())
	}
	// Others of later positions stay, since they are of other aggregates.
	if end := left.Preceding(); !left.IsZero() && end.Compare(v.end) < 0 {
		v.end, v.more = end, true
	}
}
