package entiam_test

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/persistence"
	"github.com/onward-go/outbox/testdata/iam/entiam"
	"github.com/onward-go/outbox/testdata/iam/entiam/ent"
	"github.com/onward-go/outbox/testdata/iam/entiam/ent/outbox"
	"github.com/onward-go/outbox/testdata/iam/entiam/stamp"
)

// bounds are events with the least and the most that each field takes.
func bounds() map[string]events.Event {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	name := strings.Repeat("ü", 127) + "x" // 255 bytes
	least := events.Event{Type: "t", AggregateType: "A", AggregateID: "a"}
	with := func(change func(*events.Event)) events.Event {
		evt := least
		change(&evt)
		return evt
	}
	return map[string]events.Event{
		"the least":      least,
		"the longest":    {Type: name, AggregateType: name, AggregateID: name, AccountID: name},
		"four bytes":     {Type: "\U0001F4E6", AggregateType: "\U0001F4E6", AggregateID: "\U0001F4E6", AccountID: "\U0001F4E6"},
		"blanks":         {Type: " t ", AggregateType: " A ", AggregateID: " a ", AccountID: " "},
		"quotes":         {Type: `'"` + "`", AggregateType: `\`, AggregateID: "%_$1?", AccountID: "\n\t"},
		"a long id":      with(func(evt *events.Event) { evt.ID = strings.Repeat("~", persistence.MaxIDBytes) }),
		"every byte":     with(func(evt *events.Event) { evt.Payload = all }),
		"a big payload":  with(func(evt *events.Event) { evt.Payload = bytes.Repeat(all, 4096) }),
		"an empty one":   with(func(evt *events.Event) { evt.Payload = []byte{} }),
		"a JSON payload": with(func(evt *events.Event) { evt.Payload = []byte(`{"a": 1,  "a": 2}`) }),
	}
}

func TestEntReadsWhatIsPublished(t *testing.T) {
	everywhere(t, func(t *testing.T, db database) {
		publisher := events.NewPublisher(db.outbox)
		want := make(map[string]events.Event) // by id
		for name, evt := range bounds() {
			if evt.ID == "" {
				evt.ID = strings.ReplaceAll(name, " ", "-")
			}
			want[evt.ID] = evt
			require.NoError(t, db.outbox.Atomically(t.Context(), func(ctx context.Context) error { return publisher.Publish(ctx, evt) }), name)
		}

		rows, err := db.client.Outbox.Query().Order(outbox.ByCreatedTime(), outbox.ByID()).All(t.Context())
		require.NoError(t, err)
		require.Len(t, rows, len(want))
		page, err := db.outbox.ReadWindow(t.Context(), persistence.WindowRead{Limit: 100})
		require.NoError(t, err)
		records := page.Records
		require.Len(t, records, len(want))
		for i, row := range rows {
			// As the library reads it, to the microsecond and in the same order.
			require.Equal(t, records[i], record(row))
			evt := want[row.ID]
			require.Equal(t, []string{evt.Type, evt.AggregateType, evt.AggregateID, evt.AccountID},
				[]string{row.EventType, row.AggregateType, row.AggregateID, row.AccountID})
			require.True(t, bytes.Equal(evt.Payload, row.Payload), "payload of %s", row.ID)
			require.Equal(t, time.UTC, row.CreatedTime.Location())
			require.WithinDuration(t, time.Now(), row.CreatedTime.Time, time.Minute)
		}
	})
}

// record is a row as the library has it.
func record(row *ent.Outbox) persistence.Record {
	return persistence.Record{
		ID:            row.ID,
		AccountID:     row.AccountID,
		AggregateType: row.AggregateType,
		AggregateID:   row.AggregateID,
		EventType:     row.EventType,
		Payload:       row.Payload,
		CreatedTime:   row.CreatedTime.Time,
	}
}

func TestEntSelectsEvents(t *testing.T) {
	everywhere(t, func(t *testing.T, db database) {
		publisher := events.NewPublisher(db.outbox)
		for _, id := range []string{"a", "b", "c"} {
			require.NoError(t, db.outbox.Atomically(t.Context(), func(ctx context.Context) error { return publisher.Publish(ctx, event(id)) }))
		}
		b, err := db.client.Outbox.Query().Where(outbox.AggregateID("b"), outbox.EventType("iam.v1.UserSuspended")).Only(t.Context())
		require.NoError(t, err)
		for since, want := range map[time.Time][]string{
			b.CreatedTime.Time:                        {"b", "c"},
			b.CreatedTime.Local():                     {"b", "c"},
			b.CreatedTime.Add(time.Microsecond):       {"c"},
			b.CreatedTime.Add(-24 * time.Hour):        {"a", "b", "c"},
			b.CreatedTime.Add(24 * time.Hour).Local(): nil,
		} {
			var ids []string
			rows, err := db.client.Outbox.Query().Where(entiam.Since(since)).Order(outbox.ByCreatedTime()).All(t.Context())
			require.NoError(t, err)
			for _, row := range rows {
				ids = append(ids, row.ID)
			}
			require.Equal(t, want, ids, since)
		}

		// What would compare wrongly on some database fails on each.
		_, err = db.client.Outbox.Query().Where(outbox.CreatedTimeGTE(stamp.Time{Time: time.Now()})).All(t.Context())
		require.ErrorContains(t, err, "entiam.Since")
	})
}
