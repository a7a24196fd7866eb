package why

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/onward-go/outbox/persistence"
)

// unsettled tells of a handler without a marker: what it waits for.
func (q *inquiry) unsettled(ctx context.Context, record persistence.Record, all []persistence.SubscriptionState, h *Handler) error {
	event := record.Cursor()
	sub := subscriptionOf(all, record.EventType, h.Handler)
	if event.Compare(sub.Start) <= 0 {
		h.State, h.Detail = TooOld, "subscribed later, from "+sub.Start.String()
		return nil
	}
	failures, err := q.store.Failures(ctx, h.Dispatcher, event)
	if err != nil {
		return err
	}
	for _, a := range failures {
		if a.Handler == h.Handler {
			q.inBackOff(a, h)
			return nil
		}
	}
	d := q.dispatcher(h.Dispatcher)
	switch {
	case event.Compare(d.Cursor) > 0:
		return q.ahead(ctx, record, all, d, h)
	case sub.Behind != nil && event.Compare(*sub.Behind) > 0:
		h.State, h.Detail = HandlerBehind, "the cursor has passed it while no replica at work had the handler, which is behind from "+sub.Behind.String()
	default:
		h.State, h.Detail = CursorPassed, "the cursor has passed it, at "+d.Cursor.String()
	}
	return nil
}

func (q *inquiry) inBackOff(a persistence.Attempt, h *Handler) {
	h.State, h.Attempts, h.LastError, h.NextTime = InBackOff, a.Attempts, a.LastError, &a.NextTime
	h.Detail = fmt.Sprintf("%s; in back-off until %s", attempts(a.Attempts), stamp(a.NextTime))
	if !a.NextTime.After(q.status.Now) {
		h.Detail = fmt.Sprintf("%s; due since %s", attempts(a.Attempts), stamp(a.NextTime))
	}
}

// ahead tells of an event that the cursor has not passed. The first unsettled
// event of its aggregate is at work; the others wait behind it.
func (q *inquiry) ahead(ctx context.Context, record persistence.Record, all []persistence.SubscriptionState, d persistence.DispatcherStatus, h *Handler) error {
	page, err := q.store.FindRecords(ctx, persistence.RecordQuery{
		After: d.Cursor, Before: record.Cursor(), WithoutPayload: true, Limit: persistence.MaxStatusCount, MostRows: persistence.MaxStatusCount,
		AccountID: record.AccountID, AggregateType: record.AggregateType, AggregateID: record.AggregateID,
	})
	if err != nil {
		return err
	}
	first, handler, err := q.firstUnsettled(ctx, page.Records, record.AccountID, all, d.Dispatcher)
	if err != nil {
		return err
	}
	before := persistence.Count{N: page.Looked, More: page.More}
	if first == nil {
		h.State, h.Detail = InLine, q.line(record.Cursor(), d, before)
		return nil
	}
	h.State, h.Behind, h.BehindHandler = BehindAnother, first, handler
	h.Detail = fmt.Sprintf("waits behind event %s of its aggregate, which handler %s has not settled", first.ID, handler)
	failures, err := q.store.Failures(ctx, d.Dispatcher, *first)
	for _, a := range failures {
		if a.Handler == handler {
			h.Detail += fmt.Sprintf(": %s, next at %s: %s", attempts(a.Attempts), stamp(a.NextTime), a.LastError)
		}
	}
	return err
}

// markersAtOnce bounds how many markers one statement looks for.
const markersAtOnce = 500

// firstUnsettled returns the first of the aggregate's events that a handler of the
// dispatcher has not settled, and the handler.
func (q *inquiry) firstUnsettled(ctx context.Context, records []persistence.Record, account string, all []persistence.SubscriptionState, dispatcher string) (*persistence.Cursor, string, error) {
	var markers []persistence.Marker
	for _, r := range records {
		for _, sub := range all {
			if r.AccountID == account && sub.EventType == r.EventType && sub.Dispatcher == dispatcher && r.Cursor().Compare(sub.Start) > 0 {
				markers = append(markers, persistence.Marker{Event: r.Cursor(), Handler: sub.Handler})
			}
		}
	}
	for some := range slices.Chunk(markers, markersAtOnce) {
		applied, err := q.store.Applied(ctx, some...)
		if err != nil {
			return nil, "", err
		}
		for i, m := range some {
			if !applied[i] {
				return &m.Event, m.Handler, nil
			}
		}
	}
	return nil, "", nil
}

// line says what an event waits for that no other one holds back.
func (q *inquiry) line(event persistence.Cursor, d persistence.DispatcherStatus, before persistence.Count) string {
	var what []string
	switch {
	case d.Lease.Held:
		what = append(what, "dispatcher at work: "+d.Lease.Owner)
	case d.Lease.Owner == "":
		what = append(what, "no dispatcher is at work: nobody holds the lease")
	default:
		what = append(what, fmt.Sprintf("no dispatcher is at work: the lease of %s expired at %s", d.Lease.Owner, stamp(d.Lease.Expires)))
	}
	switch {
	case before.More:
		what = append(what, fmt.Sprintf("more than %d events between the cursor and it", before.N))
	case before.N > 0:
		what = append(what, fmt.Sprintf("%d between the cursor and it", before.N))
	}
	if n := failingBefore(event, d); n > 0 {
		what = append(what, fmt.Sprintf("%d of those fail, which holds it back if the dispatcher has a concurrency of 1", n))
	}
	if len(q.status.Producers) > 0 && (before.More || before.N >= persistence.MaxStatusCount) {
		what = append(what, "an open producer holds the cursor back")
		q.report.Producers = q.status.Producers
	}
	return strings.Join(what, "; ")
}

// failingBefore returns how many of the dispatcher's failing deliveries are of
// events before one, as far as its status lists them.
func failingBefore(event persistence.Cursor, d persistence.DispatcherStatus) (n int) {
	for _, a := range d.Failing {
		if a.Event.Compare(event) < 0 {
			n++
		}
	}
	return n
}

func (q *inquiry) dispatcher(name string) persistence.DispatcherStatus {
	for _, d := range q.status.Dispatchers {
		if d.Dispatcher == name {
			return d
		}
	}
	return persistence.DispatcherStatus{Dispatcher: name}
}

func subscriptionOf(all []persistence.SubscriptionState, eventType, handler string) persistence.SubscriptionState {
	for _, sub := range all {
		if sub.EventType == eventType && sub.Handler == handler {
			return sub
		}
	}
	return persistence.SubscriptionState{}
}

func dispatcherOf(all []persistence.SubscriptionState, eventType, handler string) string {
	return subscriptionOf(all, eventType, handler).Dispatcher
}

func cmpHandlers(a, b Handler) int {
	return cmp.Or(strings.Compare(a.Dispatcher, b.Dispatcher), strings.Compare(a.Handler, b.Handler))
}
