package command

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/onward-go/outbox/cmd/outboxctl/internal/why"
	"github.com/onward-go/outbox/persistence"
)

// tail is what the events command is asked for.
type tail struct {
	query   persistence.RecordQuery
	since   instant
	follow  bool
	payload bool
	every   time.Duration
}

func (a *app) eventsCommand() *cobra.Command {
	t := &tail{}
	c := &cobra.Command{
		Use:   "events",
		Short: "List the latest events, or those since a time, and follow what comes",
		Long: `List the latest events, or with --since the first ones from then on. With --follow
go on with what becomes visible, in the order in which it does.

With filters at most --most-rows events are looked at; the exit code is 3 if that ends
the list. With --json each event is a line of its own. Payloads are shown with
--payload only.`,
		Args: arguments(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := t.query.Check(); err != nil {
				return usage(c, "%w", err)
			}
			if t.every <= 0 {
				return usage(c, "--every must be greater than 0")
			}
			t.query.WithoutPayload = !t.payload
			if t.follow { // until it is interrupted
				return a.writing(c.Context(), false, func(ctx context.Context, outbox connection) error { return a.follow(ctx, outbox, t) })
			}
			return a.reading(c.Context(), func(ctx context.Context, outbox connection) error { return a.events(ctx, outbox, t) })
		},
	}
	flags := c.Flags()
	flags.StringVar(&t.query.EventType, "type", "", "events of this type")
	flags.StringVar(&t.query.AccountID, "account", "", "events of this account")
	flags.StringVar(&t.query.AggregateType, "aggregate-type", "", "events of aggregates of this type")
	flags.StringVar(&t.query.AggregateID, "aggregate-id", "", "events of the aggregate with this id")
	flags.Var(&t.since, "since", "from this time on, or that long ago")
	flags.IntVar(&t.query.Limit, "limit", 20, "list so many events at most")
	flags.IntVar(&t.query.MostRows, "most-rows", 100_000, "look at so many events at most")
	flags.BoolVar(&t.follow, "follow", false, "go on with what becomes visible")
	flags.BoolVar(&t.payload, "payload", false, "show payloads, which may hold personal data")
	flags.DurationVar(&t.every, "every", 500*time.Millisecond, "how often --follow looks")
	return c
}

// listedEvent is an event as it is listed.
type listedEvent struct {
	why.Event
	*payload
}

// payload is one that may be shown: as it is where that is JSON or text, else
// encoded, which Base64 says.
type payload struct {
	Value  any  `json:"payload"`
	Base64 bool `json:"payload_base64,omitempty"`
}

func payloadOf(data []byte) *payload {
	switch {
	case json.Valid(data):
		return &payload{Value: json.RawMessage(data)}
	case utf8.Valid(data):
		return &payload{Value: string(data)}
	}
	return &payload{Value: data, Base64: true}
}

func (p *payload) String() string {
	if raw, ok := p.Value.(json.RawMessage); ok {
		return string(raw)
	}
	if text, ok := p.Value.(string); ok {
		return text
	}
	text, _ := json.Marshal(p.Value) // bytes in base64
	return strings.Trim(string(text), `"`)
}

func (t *tail) listed(r persistence.Record) listedEvent {
	e := listedEvent{Event: *why.EventOf(r)}
	if t.payload {
		e.payload = payloadOf(r.Payload)
	}
	return e
}

// page is one answer.
func (t *tail) page(ctx context.Context, outbox connection) (persistence.RecordPage, error) {
	query := t.query
	query.Backwards = !t.since.set
	if t.since.set {
		mark, err := outbox.SafeMark(ctx)
		if err != nil {
			return persistence.RecordPage{}, err
		}
		query.After = persistence.Cursor{CreatedTime: t.since.time(mark.Now)}
	}
	page, err := outbox.FindRecords(ctx, query)
	if query.Backwards {
		slices.Reverse(page.Records)
	}
	return page, err
}

func (a *app) events(ctx context.Context, outbox connection, t *tail) error {
	page, err := t.page(ctx, outbox)
	if err != nil {
		return err
	}
	cut := page.More && len(page.Records) < t.query.Limit
	if err := a.list(t, page.Records, true, cut); err != nil {
		return err
	}
	if cut {
		return errFinding
	}
	return nil
}

// list prints events; cut says that the search ended at its bound.
func (a *app) list(t *tail, records []persistence.Record, head, cut bool) error {
	if a.json {
		encoder := json.NewEncoder(a.out)
		encoder.SetEscapeHTML(false)
		for _, r := range records {
			if err := encoder.Encode(t.listed(r)); err != nil {
				return err
			}
		}
		return nil
	}
	p := newPage(a.out)
	columns := []any{"COMMITTED", "ID", "TYPE", "AGGREGATE", "ACCOUNT"}
	if t.payload {
		columns = append(columns, "PAYLOAD")
	}
	if head && len(records) > 0 {
		p.row(columns...)
	}
	for _, r := range records {
		cells := []any{moment(r.CreatedTime), r.ID, r.EventType, r.AggregateType + "/" + r.AggregateID, or(r.AccountID, "-")}
		if t.payload {
			cells = append(cells, payloadOf(r.Payload))
		}
		p.row(cells...)
	}
	switch {
	case cut:
		p.say("Looked at %s; there are more: say --since, or more with --most-rows.", eventCount(t.query.MostRows))
	case head && len(records) == 0:
		p.say("No events.")
	}
	return p.end()
}
