package why

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/onward-go/outbox/persistence"
)

// explainMissing tells of an event that was not found.
func (q *inquiry) explainMissing(ctx context.Context) error {
	letters, err := q.letters(ctx)
	if err != nil {
		return err
	}
	if len(letters) > 0 {
		q.report.Event = EventOf(letters[0].Record)
		for _, l := range letters {
			q.report.Handlers = append(q.report.Handlers, ofLetter(l))
		}
		q.report.Verdict = verdictOf(q.report.Handlers)
		q.summarize()
		q.report.Summary = "Retention has dropped the event; its dead letters stay. " + q.report.Summary
		return nil
	}
	if q.status, err = q.store.ReadStatus(ctx); err != nil {
		return err
	}
	for _, p := range q.status.Producers {
		if q.mayHold(p) {
			q.report.Producers = append(q.report.Producers, p)
		}
	}
	oldest, err := q.store.FindRecords(ctx, persistence.RecordQuery{WithoutPayload: true, Limit: 1, MostRows: 1})
	if err != nil {
		return err
	}
	// Where no partition tells from when on events are kept, retention leaves no trace.
	removable := q.partitionsFrom().IsZero() && len(oldest.Records) > 0 && q.toldBefore(oldest.Records[0].CreatedTime)
	switch {
	case len(q.report.Producers) > 0:
		q.report.Verdict = NotVisible
		q.report.Summary = fmt.Sprintf("No event with this id is visible. It may be in a transaction that is open: nobody sees it before %s.", theyCommit(len(q.report.Producers)))
		q.advise("Find out what the producer does; end its session if it is stuck. If the transaction rolls back, the event never was.")
	case q.toldBefore(q.partitionsFrom()):
		q.report.Verdict = Dropped
		q.report.Summary = fmt.Sprintf("The id was made at %s, and the oldest partition begins at %s: retention has dropped the event, if it ever existed.",
			stamp(q.told), stamp(q.partitionsFrom()))
	case !q.report.Search.Complete:
		q.report.Verdict = Unknown
		q.report.Summary = fmt.Sprintf("Looked at as many events as was allowed (%d) and did not find it; there are more where it may be.", q.report.Search.Rows)
		q.advise("Say more exactly since when with --since, or look at more events with --most-rows.")
	default:
		q.report.Verdict = NotFound
		where := ""
		if q.Since.IsZero() {
			where = fmt.Sprintf(" within %s of the time that it tells", short(q.Within))
			q.advise("If the id was made long before it was published, say since when to look: --since 30d.")
		}
		if q.Blind || q.status.IsUnread(persistence.StatusProducers, "") {
			q.advise("This database does not show transactions that are open: if a service may be about to commit it, ask again.")
		}
		q.report.Summary = "There is no event with this id" + where + ": it was never published, its transaction was rolled back, or the id is another one."
		if removable {
			q.report.Summary += fmt.Sprintf(" Or retention has removed it: the oldest event that is there is of %s.", stamp(oldest.Records[0].CreatedTime))
		}
	}
	return nil
}

// partitionsFrom is the beginning of the oldest partition of events, or zero.
func (q *inquiry) partitionsFrom() time.Time {
	if len(q.status.Partitions) == 0 || q.status.IsUnread(persistence.StatusPartitions, "") {
		return time.Time{}
	}
	return q.status.Partitions[0].From // the first table is the outbox
}

// toldBefore reports whether the id tells surely an earlier time; none is before the
// zero time.
func (q *inquiry) toldBefore(t time.Time) bool {
	return !q.told.IsZero() && q.told.Add(slack).Before(t)
}

// short writes whole hours without minutes and seconds.
func short(d time.Duration) string {
	if d%time.Hour == 0 {
		return fmt.Sprintf("%dh", d/time.Hour)
	}
	return d.String()
}

// slack is how far the clocks of services and database may lie apart.
const slack = time.Minute

func theyCommit(producers int) string {
	if producers == 1 {
		return "it commits"
	}
	return "they commit"
}

// mayHold reports whether a producer may have published the event: it began
// before the event was made.
func (q *inquiry) mayHold(p persistence.ProducerStatus) bool {
	return q.told.IsZero() || p.Began.IsZero() || p.Began.Before(q.told.Add(slack))
}

const (
	letterPage  = 500
	mostLetters = 10_000
)

// letters looks for dead letters of an event whose row is gone, near the time that
// its id tells or since the time given.
func (q *inquiry) letters(ctx context.Context) (found []persistence.DeadLetter, err error) {
	from, to := q.Since, time.Time{}
	if from.IsZero() {
		from, to = q.told.Add(-q.Within), q.told.Add(q.Within)
	}
	query := persistence.DeadLetterQuery{WithoutPayload: true, Limit: letterPage}
	query.After.Event.CreatedTime = from
	for looked := 0; looked < mostLetters; looked += letterPage {
		page, err := q.store.ListDeadLetters(ctx, query)
		if err != nil {
			return nil, err
		}
		for _, l := range page {
			if l.Record.ID == q.EventID {
				found = append(found, l)
			}
		}
		if len(page) < letterPage || !to.IsZero() && page[len(page)-1].Record.CreatedTime.After(to) {
			return found, nil
		}
		query.After = page[len(page)-1].Marker()
	}
	return found, nil
}

func (q *inquiry) letter(ctx context.Context, marker persistence.Marker) (persistence.DeadLetter, bool, error) {
	letter, err := q.store.GetDeadLetter(ctx, marker)
	if errors.Is(err, persistence.ErrNotFound) {
		return letter, false, nil
	}
	return letter, err == nil, err
}
