package why

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/memstore"
	"github.com/onward-go/outbox/persistence"
)

func TestTheTimeInAUUIDv7(t *testing.T) {
	before := time.Now().Truncate(time.Millisecond)
	at, ok := TimeOf(events.NewID())
	require.True(t, ok)
	require.WithinRange(t, at, before, time.Now())
	for _, id := range []string{
		"", "order-4711", "018bcfe5-6800-4000-8000-000000000000", "018bcfe5-6800-7000-c000-000000000000",
		"018bcfe5x6800-7000-8000-000000000000", "g18bcfe5-6800-7000-8000-000000000000",
	} {
		_, ok := TimeOf(id)
		require.False(t, ok, id)
	}
}

// counting counts the rows that are looked at.
type counting struct {
	*memstore.Store
	rows int
}

func (c *counting) FindRecords(ctx context.Context, query persistence.RecordQuery) (persistence.RecordPage, error) {
	page, err := c.Store.FindRecords(ctx, query)
	c.rows += page.Looked
	return page, err
}

// idAt is a UUIDv7 of a time.
func idAt(at time.Time) string {
	hex := fmt.Sprintf("%012x", at.UnixMilli())
	return hex[:8] + "-" + hex[8:] + "-7000-8000-000000000001"
}

// An event is found however far its id's clock is from the database's, and each
// event is looked at once, up to the bound.
func TestAnEventIsLookedForInWiderAndWiderSteps(t *testing.T) {
	made := time.Now().UTC().Truncate(time.Millisecond)
	for _, distance := range []time.Duration{
		0, time.Millisecond, -50 * time.Millisecond, 900 * time.Millisecond, -time.Second, 5 * time.Second, time.Minute, -time.Minute,
		time.Hour, -30 * time.Minute, 23 * time.Hour, -23 * time.Hour, 25 * time.Hour, -25 * time.Hour,
	} {
		store := &counting{Store: memstore.New()}
		record := persistence.Record{ID: idAt(made), EventType: "t", AggregateType: "a", AggregateID: "1", CreatedTime: made.Add(distance)}
		require.NoError(t, store.Insert(t.Context(), record))
		for i := range 100 { // others, evenly over four days
			other := record
			other.ID, other.CreatedTime = fmt.Sprint(i), made.Add(time.Duration(i-50)*time.Hour+time.Microsecond)
			require.NoError(t, store.Insert(t.Context(), other))
		}
		report, err := Explain(t.Context(), store, Question{EventID: record.ID, Within: 24 * time.Hour, MostRows: 1000})
		require.NoError(t, err)
		if distance.Abs() > 24*time.Hour {
			require.Equal(t, NotFound, report.Verdict, "%s", distance)
			require.True(t, report.Search.Complete)
			require.Equal(t, 48, report.Search.Rows, "each event of the range once")
			require.Equal(t, made.Add(-24*time.Hour), report.Search.From)
			require.Equal(t, made.Add(24*time.Hour), report.Search.To)
		} else {
			require.Equal(t, NoHandler, report.Verdict, "%s", distance)
			require.Equal(t, record.CreatedTime, report.Event.CreatedTime)
		}
		store.rows = 0
		report, err = Explain(t.Context(), store, Question{EventID: idAt(made.Add(time.Millisecond)), Within: 24 * time.Hour, MostRows: 10})
		require.NoError(t, err)
		require.Equal(t, Unknown, report.Verdict)
		require.False(t, report.Search.Complete)
		require.LessOrEqual(t, store.rows, 10+1, "and the oldest")
	}
}

func TestAnIDWithoutATimeNeedsOne(t *testing.T) {
	store := memstore.New()
	_, err := Explain(t.Context(), store, Question{EventID: "order-4711", Within: time.Hour, MostRows: 10})
	require.ErrorIs(t, err, ErrNoTime)
	report, err := Explain(t.Context(), store, Question{EventID: "order-4711", Since: time.Now().Add(-time.Hour), MostRows: 10})
	require.NoError(t, err)
	require.Equal(t, NotFound, report.Verdict)
}

// Who is far ahead of the cursor waits in line, and nothing is read without a
// bound to find that out.
func TestALongLine(t *testing.T) {
	store := &counting{Store: memstore.New()}
	ctx := t.Context()
	require.NoError(t, store.Create(ctx, "d", persistence.Cursor{}))
	require.NoError(t, store.Register(ctx, "d", persistence.Subscription{EventType: "t", Handler: "h"}))
	var last events.Event
	for i := range 120 {
		require.NoError(t, store.Atomically(ctx, func(ctx context.Context) error {
			var evts []events.Event
			for j := range 100 {
				last = events.Event{ID: events.NewID(), Type: "t", AggregateType: "a", AggregateID: fmt.Sprintf("%d-%d", i, j)}
				evts = append(evts, last)
			}
			return events.NewPublisher(store).Publish(ctx, evts...)
		}))
	}
	report, err := Explain(ctx, store, Question{EventID: last.ID, Within: time.Hour, MostRows: 100_000})
	require.NoError(t, err)
	require.Equal(t, Waiting, report.Verdict)
	require.Contains(t, report.Handlers[0].Detail, "more than 10000 events between the cursor and it")
	require.LessOrEqual(t, store.rows, 12_000+persistence.MaxStatusCount)
}

// A dispatcher with a concurrency of 1 stops at a failing event, whoever's it is.
func TestAFailingEventOfAnotherAggregate(t *testing.T) {
	store := memstore.New()
	ctx := t.Context()
	d := events.NewDispatcher(store, store, store, store, events.WithConcurrency(1))
	require.NoError(t, d.Subscribe("t", "h", func(context.Context, events.Event) error { return errors.New("broken") }))
	ids := []string{events.NewID(), events.NewID()}
	require.NoError(t, store.Atomically(ctx, func(ctx context.Context) error {
		return events.NewPublisher(store).Publish(ctx,
			events.Event{ID: ids[0], Type: "t", AggregateType: "a", AggregateID: "1"},
			events.Event{ID: ids[1], Type: "t", AggregateType: "a", AggregateID: "2"})
	}))
	_, err := d.RunOnce(ctx, 10)
	require.ErrorContains(t, err, "broken")
	for i, want := range []Verdict{Failing, Waiting} {
		report, err := Explain(ctx, store, Question{EventID: ids[i], Within: time.Hour, MostRows: 100})
		require.NoError(t, err)
		require.Equal(t, want, report.Verdict)
		if want == Waiting {
			require.Contains(t, report.Handlers[0].Detail, "1 between the cursor and it; 1 of those fail")
		}
	}
}

// The event that another one waits behind is found behind many of its aggregate
// that are applied, while the cursor waits for somebody else's.
func TestBehindManyOfItsAggregate(t *testing.T) {
	store := memstore.New()
	ctx := t.Context()
	d := events.NewDispatcher(store, store, store, store)
	broken := map[string]bool{}
	require.NoError(t, d.Subscribe("t", "h", func(_ context.Context, evt events.Event) error {
		if broken[evt.ID] {
			return errors.New("broken")
		}
		return nil
	}))
	publish := func(aggregate string) string {
		id := events.NewID()
		require.NoError(t, store.Atomically(ctx, func(ctx context.Context) error {
			return events.NewPublisher(store).Publish(ctx, events.Event{ID: id, Type: "t", AggregateType: "a", AggregateID: aggregate})
		}))
		return id
	}
	broken[publish("other")] = true
	for range 2 * markersAtOnce {
		publish("hot")
	}
	head := publish("hot")
	broken[head] = true
	last := publish("hot")
	for range 3 {
		_, err := d.RunOnce(ctx, 5000)
		require.ErrorContains(t, err, "broken")
	}
	report, err := Explain(ctx, store, Question{EventID: last, Within: time.Hour, MostRows: 10_000})
	require.NoError(t, err)
	require.Equal(t, Blocked, report.Verdict)
	require.Equal(t, head, report.Handlers[0].Behind.ID)
}

// kept is a store that keeps where its oldest partition begins, or does not.
type kept struct {
	*memstore.Store
	from   time.Time
	unread []persistence.UnreadPart
}

func (k kept) ReadStatus(ctx context.Context, names ...string) (persistence.Status, error) {
	status, err := k.Store.ReadStatus(ctx, names...)
	status.Partitions = []persistence.PartitionStatus{{Table: "outbox", From: k.from}}
	status.Unread = k.unread
	return status, err
}

// Only what is older than the oldest partition has been dropped. What is older than the
// oldest event may never have been.
func TestAnEventIsDroppedIfItIsOlderThanTheOldestPartition(t *testing.T) {
	made := time.Now().UTC().Truncate(time.Millisecond)
	store := memstore.New()
	ask := func(k kept) Report {
		report, err := Explain(t.Context(), k, Question{EventID: idAt(made), Within: time.Hour, MostRows: 10})
		require.NoError(t, err)
		return report
	}
	report := ask(kept{Store: store})
	require.Equal(t, NotFound, report.Verdict)
	require.NotContains(t, report.Summary, "retention")
	require.NoError(t, store.Insert(t.Context(), persistence.Record{ID: "o", EventType: "t", AggregateType: "a", AggregateID: "1", CreatedTime: made.Add(48 * time.Hour)}))
	report = ask(kept{Store: store})
	require.Equal(t, NotFound, report.Verdict)
	require.Contains(t, report.Summary, "retention has removed it: the oldest event that is there is of "+stamp(made.Add(48*time.Hour)))
	for from, want := range map[time.Duration]Verdict{-time.Hour: NotFound, slack: NotFound, slack + time.Microsecond: Dropped} {
		report = ask(kept{Store: store, from: made.Add(from)})
		require.Equal(t, want, report.Verdict, from)
		require.Equal(t, want == Dropped, strings.Contains(report.Summary, "retention"), report.Summary)
	}
	// The first table that is told is not the outbox.
	report = ask(kept{store, made.Add(time.Hour), []persistence.UnreadPart{{Part: persistence.StatusPartitions, Of: "outbox", Error: "denied"}}})
	require.Equal(t, NotFound, report.Verdict)
}

// An answer that hangs on cursors is none without them.
func TestWithoutTheDispatchersThereIsNoAnswer(t *testing.T) {
	store := memstore.New()
	d := events.NewDispatcher(store, store, store, store)
	require.NoError(t, d.Subscribe("t", "h", func(context.Context, events.Event) error { return nil }))
	_, err := d.RunOnce(t.Context(), 1)
	require.NoError(t, err)
	id := events.NewID()
	require.NoError(t, store.Atomically(t.Context(), func(ctx context.Context) error {
		return events.NewPublisher(store).Publish(ctx, events.Event{ID: id, Type: "t", AggregateType: "a", AggregateID: "1"})
	}))
	unread := []persistence.UnreadPart{{Part: persistence.StatusDispatchers, Error: "denied"}}
	_, err = Explain(t.Context(), kept{Store: store, unread: unread}, Question{EventID: id, Within: time.Hour, MostRows: 10})
	require.ErrorContains(t, err, "the dispatchers could not be read: denied")
}
