package command

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/onward-go/outbox/persistence"
)

// mostCounted bounds how many events are counted to say what a command will do.
const mostCounted = 100_000

func (a *app) rewindCommand() *cobra.Command {
	var to string
	var yes bool
	c := &cobra.Command{
		Use:   "rewind DISPATCHER",
		Short: "Move a dispatcher's cursor, in either direction",
		Long: `Move a dispatcher's cursor, in either direction. It says first what that means, and
wants the dispatcher's name typed, or --yes. The dispatcher may run meanwhile: its
holder loses the lease, and whoever takes it next begins at the new position.`,
		Args: arguments(1, 1),
		RunE: func(c *cobra.Command, args []string) error {
			if to == "" {
				return usage(c, "say where: --to beginning, --to TIME or --to TIME/EVENT_ID")
			}
			position, err := parsePosition(to)
			if err != nil {
				return usage(c, "--to: %w", err)
			}
			return a.writing(c.Context(), false, func(ctx context.Context, outbox connection) error {
				return a.rewind(ctx, outbox, args[0], position, yes)
			})
		},
	}
	c.Flags().StringVar(&to, "to", "", "beginning, a time, or a position TIME/EVENT_ID; what lies after it is delivered")
	c.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return c
}

// change is what a guarded command does to a dispatcher.
type change struct {
	Dispatcher string                  `json:"dispatcher"`
	From       persistence.Cursor      `json:"from"`
	To         persistence.Cursor      `json:"to,omitzero"`
	Direction  string                  `json:"direction,omitempty"` // back, ahead or nowhere
	Events     int                     `json:"events"`
	More       bool                    `json:"more_events,omitempty"` // than were counted
	Subscribed []string                `json:"handlers,omitempty"`
	Lease      persistence.LeaseStatus `json:"lease"`
	Done       bool                    `json:"done"`
}

func (c change) count() string {
	return counted(persistence.Count{N: c.Events, More: c.More}, "event", "events")
}

// between returns the two ends in their order.
func between(a, b persistence.Cursor) (first, last persistence.Cursor) {
	if a.Compare(b) > 0 {
		return b, a
	}
	return a, b
}

// countEvents counts the events after a position, up to another one, which
// belongs to them; a zero one is no end.
func countEvents(ctx context.Context, outbox connection, after, until persistence.Cursor) (n int, more bool, err error) {
	if until.ID != "" {
		until.ID += "!" // no character of an id comes before it
	}
	query := persistence.RecordQuery{After: after, Before: until, WithoutPayload: true, Limit: mostCounted, MostRows: mostCounted}
	// One record tells nothing, so that all that is asked for is their number.
	query.ID = noEvent
	page, err := outbox.FindRecords(ctx, query)
	return page.Looked, page.More, err
}

// noEvent is an id that no event has: it is too long for one.
const noEvent = "................................................................."

func (a *app) rewind(ctx context.Context, outbox connection, dispatcher string, to persistence.Cursor, yes bool) error {
	state, now, err := loadCursor(ctx, outbox, dispatcher)
	if err != nil {
		return err
	}
	c := change{Dispatcher: dispatcher, From: state.Cursor, To: to, Lease: state.Lease.Status(now)}
	first, last := between(state.Cursor, to)
	if !last.IsZero() {
		if c.Events, c.More, err = countEvents(ctx, outbox, first, last); err != nil {
			return err
		}
	}
	c.Direction = map[int]string{-1: "back", 0: "nowhere", 1: "ahead"}[to.Compare(state.Cursor)]
	return a.guarded(yes, dispatcher, &c, c.describeRewind, func() error { return outbox.Rewind(ctx, dispatcher, to) })
}

func (c change) describeRewind(p *page) {
	p.row("dispatcher", c.Dispatcher)
	p.row("lease", leaseText(c.Lease))
	p.row("from", c.From)
	p.row("to", c.To)
	p.gap()
	switch c.Direction {
	case "back":
		p.say("Back over %s. What lies there is read again; handlers whose markers exist are not run again, others are, out of order.", c.count())
	case "ahead":
		p.say("Ahead over %s. Those that are not delivered yet never will be.", c.count())
	default:
		p.say("The cursor is there already.")
	}
	p.say("The holder of the lease loses it, and begins anew at the position.")
}

// guarded says what will be done, does it when the operator agrees, and says so.
func (a *app) guarded(yes bool, word string, c *change, describe func(*page), do func() error) error {
	if !a.json {
		p := newPage(a.out)
		describe(p)
		if err := p.end(); err != nil {
			return err
		}
	}
	if err := a.confirm(yes, word); err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	c.Done = true
	if a.json {
		return a.show(c)
	}
	_, err := fmt.Fprintln(a.out, "Done.")
	return err
}

func (c change) text(*page) {} // guarded has said it
