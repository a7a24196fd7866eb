package why

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/onward-go/outbox/persistence"
)

// Store is what is asked.
type Store interface {
	persistence.OutboxInspector
	persistence.StatusReader
	persistence.IdempotencyStore
	persistence.SubscriptionStore
	persistence.DeadLetterStore
	SafeMark(ctx context.Context) (persistence.SafeMark, error)
}

// Question is which event is meant, and how far to look for it.
type Question struct {
	EventID string
	// Since is from when to look for it, up to now. Zero: around the time that its
	// id tells, which has to be a UUIDv7.
	Since time.Time
	// Within is how far from that time.
	Within time.Duration
	// MostRows bounds how many events are looked at.
	MostRows int
	// Blind says that the store does not know of transactions that are open.
	Blind bool
}

// inquiry is one question under way.
type inquiry struct {
	Question
	store  Store
	told   time.Time // when the id says that it was made, or zero
	status persistence.Status
	report Report
}

// Explain answers a question.
func Explain(ctx context.Context, store Store, question Question) (Report, error) {
	q := &inquiry{Question: question, store: store, report: Report{EventID: question.EventID, Handlers: []Handler{}}}
	q.told, _ = TimeOf(question.EventID)
	record, found, err := q.find(ctx)
	switch {
	case err != nil:
		return q.report, err
	case found:
		q.report.Event = EventOf(record)
		err = q.explainFound(ctx, record)
	default:
		err = q.explainMissing(ctx)
	}
	return q.report, err
}

// explainFound tells of an event that is there.
func (q *inquiry) explainFound(ctx context.Context, record persistence.Record) error {
	event := record.Cursor()
	applied, err := q.store.AppliedHandlers(ctx, event)
	if err != nil {
		return err
	}
	all, err := q.store.ListSubscriptions(ctx)
	if err != nil {
		return err
	}
	for _, sub := range all {
		if sub.EventType == record.EventType && !slices.Contains(applied, sub.Handler) {
			q.report.Handlers = append(q.report.Handlers, Handler{Handler: sub.Handler, Dispatcher: sub.Dispatcher, State: InLine})
		}
	}
	open := len(q.report.Handlers)
	for _, handler := range applied {
		h, err := q.settled(ctx, event, handler, dispatcherOf(all, record.EventType, handler))
		if err != nil {
			return err
		}
		q.report.Handlers = append(q.report.Handlers, h)
	}
	if open > 0 {
		if q.status, err = q.store.ReadStatus(ctx); err != nil {
			return err
		}
		for _, u := range q.status.Unread {
			if u.Part == persistence.StatusDispatchers { // whose cursors the answer hangs on
				return fmt.Errorf("the dispatchers could not be read: %s", u.Error)
			}
		}
		for i := range q.report.Handlers[:open] {
			if err := q.unsettled(ctx, record, all, &q.report.Handlers[i]); err != nil {
				return err
			}
		}
	}
	slices.SortFunc(q.report.Handlers, func(a, b Handler) int { return cmpHandlers(a, b) })
	q.report.Verdict = verdictOf(q.report.Handlers)
	q.summarize()
	return nil
}

// settled tells of a handler whose marker exists: it has been applied, or has
// left a letter.
func (q *inquiry) settled(ctx context.Context, event persistence.Cursor, handler, dispatcher string) (Handler, error) {
	h := Handler{Handler: handler, Dispatcher: dispatcher, State: Applied}
	letter, found, err := q.letter(ctx, persistence.Marker{Event: event, Handler: handler})
	if err != nil || !found {
		return h, err
	}
	return ofLetter(letter), nil
}

func ofLetter(letter persistence.DeadLetter) Handler {
	h := Handler{Handler: letter.Handler, Dispatcher: letter.Dispatcher, Attempts: letter.Attempts, LastError: letter.LastError}
	since := stamp(letter.DeadTime)
	switch letter.State {
	case persistence.DeadLetterDead:
		h.State, h.Detail = Dead, fmt.Sprintf("given up at %s after %s", since, attempts(letter.Attempts))
	case persistence.DeadLetterRequeued:
		h.State, h.Detail = Requeued, "the dispatcher is to replay it"
	case persistence.DeadLetterReplayed:
		h.State, h.Detail = Replayed, "was a dead letter, and has been replayed"
	default:
		h.State, h.Detail = LetterDropped, "an operator has discarded the dead letter of "+since
	}
	return h
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000Z") }

func attempts(n int) string {
	if n == 1 {
		return "1 attempt"
	}
	return fmt.Sprintf("%d attempts", n)
}
