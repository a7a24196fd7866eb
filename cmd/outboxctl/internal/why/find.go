package why

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/onward-go/outbox/persistence"
)

// ErrNoTime says that an id does not tell its time, so that nobody knows where to
// look.
var ErrNoTime = errors.New("the id does not tell when the event was made")

// TimeOf returns the time in a UUIDv7 (RFC 9562, section 5.7).
func TimeOf(id string) (time.Time, bool) {
	if len(id) != 36 || id[8] != '-' || id[13] != '-' || id[18] != '-' || id[23] != '-' || id[14] != '7' ||
		!strings.ContainsRune("89abAB", rune(id[19])) {
		return time.Time{}, false
	}
	bytes, err := hex.DecodeString(strings.ReplaceAll(id, "-", ""))
	if err != nil {
		return time.Time{}, false
	}
	var millis int64
	for _, b := range bytes[:6] {
		millis = millis<<8 | int64(b)
	}
	return time.UnixMilli(millis).UTC(), true
}

// steps are how far to look around the time that an id tells, one after the
// other. The id is made shortly before the row, by another clock.
var steps = []struct{ before, after time.Duration }{
	{100 * time.Millisecond, time.Second},
	{2 * time.Second, 10 * time.Second},
	{time.Minute, 2 * time.Minute},
	{10 * time.Minute, 20 * time.Minute},
	{time.Hour, 2 * time.Hour},
}

// find looks for the event, in wider and wider ranges.
func (q *inquiry) find(ctx context.Context) (persistence.Record, bool, error) {
	search := &q.report.Search
	if !q.Since.IsZero() {
		search.From = q.Since
		r, found, err := q.look(ctx, q.Since, time.Time{})
		search.Complete = !found && search.Rows < q.MostRows
		return r, found, err
	}
	if q.told.IsZero() {
		return persistence.Record{}, false, fmt.Errorf("event %s: %w", q.EventID, ErrNoTime)
	}
	search.From, search.To = q.told, q.told
	for i := 0; ; i++ {
		before, after := q.Within, q.Within
		if i < len(steps) {
			before, after = min(steps[i].before, q.Within), min(steps[i].after, q.Within)
		}
		for _, end := range []struct {
			from, to time.Time
			reached  *time.Time
			at       time.Time
		}{
			{search.To, q.told.Add(after), &search.To, q.told.Add(after)},
			{q.told.Add(-before), search.From, &search.From, q.told.Add(-before)},
		} {
			if !end.from.Before(end.to) {
				continue
			}
			r, found, err := q.look(ctx, end.from, end.to)
			if err != nil || found || search.Rows >= q.MostRows {
				return r, found, err
			}
			*end.reached = end.at
		}
		if before == q.Within && after == q.Within {
			search.Complete = true
			return persistence.Record{}, false, nil
		}
	}
}

// look looks for the event from a time, inclusive, to another one, exclusive.
func (q *inquiry) look(ctx context.Context, from, to time.Time) (persistence.Record, bool, error) {
	search := &q.report.Search
	page, err := q.store.FindRecords(ctx, persistence.RecordQuery{
		After: persistence.Cursor{CreatedTime: from}, Before: persistence.Cursor{CreatedTime: to},
		ID: q.EventID, WithoutPayload: true, Limit: 1, MostRows: q.MostRows - search.Rows,
	})
	search.Rows += page.Looked
	if err != nil || len(page.Records) == 0 {
		return persistence.Record{}, false, err
	}
	return page.Records[0], true, nil
}
