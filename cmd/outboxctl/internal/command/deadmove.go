package command

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/persistence"
)

func (a *app) deadShow() *cobra.Command {
	var withPayload bool
	c := &cobra.Command{
		Use:   "show EVENT_ID [HANDLER]",
		Short: "Show the dead letters of an event",
		Args:  arguments(1, 2),
		RunE: func(c *cobra.Command, args []string) error {
			return a.reading(c.Context(), func(ctx context.Context, outbox connection) error {
				found, err := lettersOfEvent(ctx, outbox, args, !withPayload)
				if err != nil {
					return err
				}
				list := shownLetters{}
				for _, l := range found {
					shown := letterOf(l)
					if withPayload {
						shown.payload = payloadOf(l.Record.Payload)
					}
					list = append(list, shown)
				}
				return a.show(list)
			})
		},
	}
	c.Flags().BoolVar(&withPayload, "payload", false, "show the payload, which may hold personal data")
	return c
}

type shownLetters []letter

func (s shownLetters) text(p *page) {
	for i, l := range s {
		if i > 0 {
			p.gap()
		}
		p.row("event", l.Event.ID)
		p.row("handler", l.Handler)
		p.row("dispatcher", l.Dispatcher)
		p.row("state", l.State)
		p.row("attempts", l.Attempts)
		p.row("dead since", moment(l.DeadTime))
		p.row("type", l.Type)
		p.row("aggregate", l.AggregateType+"/"+l.AggregateID)
		p.row("account", or(l.AccountID, "-"))
		p.row("committed", moment(l.Event.CreatedTime))
		p.lines("error", or(l.LastError, "-"))
		if l.payload != nil {
			p.row("payload", l.payload)
		}
	}
}

// mostHandlers is more letters than an event can have, in practice.
const mostHandlers = 1000

// lettersOfEvent returns the letters of an event and a handler, or all handlers.
func lettersOfEvent(ctx context.Context, outbox connection, args []string, withoutPayload bool) ([]persistence.DeadLetter, error) {
	query := persistence.DeadLetterQuery{EventID: args[0], WithoutPayload: withoutPayload, Limit: mostHandlers}
	if len(args) > 1 {
		query.Handler = args[1]
	}
	found, err := lettersOf(outbox).List(ctx, query)
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("no dead letter of event %s: %w; `outboxctl why %s` says what has become of it", args[0], persistence.ErrNotFound, args[0])
		if len(args) > 1 {
			err = fmt.Errorf("handler %s: %w", args[1], err)
		}
	}
	return found, err
}

// mover moves one letter.
type mover func(*events.DeadLetters, context.Context, persistence.Marker) error

// deadMove is a command that moves the letters of one event, or with --all those
// that filters select.
func (a *app) deadMove(use, short, done string, move mover, from ...persistence.DeadLetterState) *cobra.Command {
	var all, yes bool
	var query persistence.DeadLetterQuery
	c := &cobra.Command{
		Use:   use + " [EVENT_ID [HANDLER]]",
		Short: short,
		Long: short + `: those of one event, or with --all those
that the filters select. With --all it says first how many these are, and wants their
number typed, or --yes.`,
		Args: arguments(0, 2),
		RunE: func(c *cobra.Command, args []string) error {
			filtered := query != (persistence.DeadLetterQuery{})
			if all == (len(args) > 0) || filtered && !all {
				return usage(c, "say either EVENT_ID, or --all with filters")
			}
			return a.writing(c.Context(), false, func(ctx context.Context, outbox connection) error {
				if !all {
					return a.moveOne(ctx, outbox, args, done, move)
				}
				return a.moveAll(ctx, outbox, query, yes, done, move, from)
			})
		},
	}
	c.Flags().BoolVar(&all, "all", false, "all letters that the filters select")
	c.Flags().BoolVar(&yes, "yes", false, "do not ask")
	letterFilters(c.Flags(), &query)
	return c
}

// moved is what has become of letters.
type moved struct {
	Done    int      `json:"done"`
	To      string   `json:"to"`
	Letters []letter `json:"letters"`
	Skipped []string `json:"skipped,omitempty"` // why, of those that had changed meanwhile
	// Unserved are the handlers of requeued letters that no dispatcher subscribes.
	Unserved []string `json:"unserved,omitempty"`
}

func (m moved) text(p *page) {
	if len(m.Letters) > 0 {
		p.row("EVENT", "HANDLER", "STATE")
		for _, l := range m.Letters {
			p.row(l.Event.ID, l.Handler, l.State)
		}
	}
	p.say("%s %s.", letters(m.Done), m.To)
	if m.To == string(persistence.DeadLetterRequeued) && m.Done > 0 {
		p.say("Their dispatchers replay them within seconds, where they have the handlers; `outboxctl dead list` shows what came of it.")
	}
	for _, handler := range m.Unserved {
		p.say("No dispatcher subscribes %s: its letters wait until one does.", handler)
	}
	for _, skipped := range m.Skipped {
		p.say("Left alone: %s", skipped)
	}
}

func letters(n int) string { return counted(persistence.Count{N: n}, "dead letter", "dead letters") }

func (m *moved) move(ctx context.Context, outbox connection, l persistence.DeadLetter, move mover) error {
	err := move(lettersOf(outbox), ctx, l.Marker())
	switch {
	case err == nil:
		m.Done++
		l.State = persistence.DeadLetterState(m.To)
		m.Letters = append(m.Letters, letterOf(l))
	case errors.Is(err, events.ErrLetterState), errors.Is(err, persistence.ErrNotFound):
		m.Skipped = append(m.Skipped, err.Error())
	default:
		return err
	}
	return nil
}

// findUnserved looks for the handlers of requeued letters that nobody subscribes.
func (m *moved) findUnserved(ctx context.Context, outbox connection) error {
	if m.To != string(persistence.DeadLetterRequeued) || m.Done == 0 {
		return nil
	}
	subscriptions, err := outbox.ListSubscriptions(ctx)
	if err != nil {
		return err
	}
	for _, l := range m.Letters {
		served := slices.ContainsFunc(subscriptions, func(s persistence.SubscriptionState) bool {
			return s.EventType == l.Type && s.Handler == l.Handler
		})
		if name := fmt.Sprintf("handler %q of %q", l.Handler, l.Type); !served && !slices.Contains(m.Unserved, name) {
			m.Unserved = append(m.Unserved, name)
		}
	}
	return nil
}

func (a *app) moveOne(ctx context.Context, outbox connection, args []string, done string, move mover) error {
	found, err := lettersOfEvent(ctx, outbox, args, true)
	if err != nil {
		return err
	}
	m := moved{To: done, Letters: []letter{}}
	for _, l := range found {
		if err := m.move(ctx, outbox, l, move); err != nil {
			return err
		}
	}
	if m.Done == 0 {
		return fmt.Errorf("%s", m.Skipped[0])
	}
	if err := m.findUnserved(ctx, outbox); err != nil {
		return err
	}
	return a.show(m)
}

// moveAll moves the letters that the filters select, in one of the states.
func (a *app) moveAll(ctx context.Context, outbox connection, query persistence.DeadLetterQuery, yes bool, done string, move mover, from []persistence.DeadLetterState) error {
	var found []persistence.DeadLetter
	for _, state := range from {
		inState, err := allLetters(ctx, outbox, query, state)
		if err != nil {
			return err
		}
		found = append(found, inState...)
	}
	m := moved{To: done, Letters: []letter{}}
	if len(found) == 0 {
		return a.show(m)
	}
	if !a.json {
		if _, err := fmt.Fprintf(a.out, "To be %s: %s.\n", done, letters(len(found))); err != nil {
			return err
		}
	}
	if err := a.confirm(yes, fmt.Sprint(len(found))); err != nil {
		return err
	}
	for _, l := range found {
		if err := m.move(ctx, outbox, l, move); err != nil {
			return errors.Join(err, a.show(m))
		}
	}
	if err := m.findUnserved(ctx, outbox); err != nil {
		return err
	}
	return a.show(m)
}

func allLetters(ctx context.Context, outbox connection, query persistence.DeadLetterQuery, state persistence.DeadLetterState) (all []persistence.DeadLetter, err error) {
	query.State, query.WithoutPayload, query.Limit = state, true, mostHandlers
	for n := query.Limit; n == query.Limit; {
		page, err := lettersOf(outbox).List(ctx, query)
		if err != nil {
			return nil, err
		}
		all = append(all, page...)
		if n = len(page); n > 0 {
			query.After = page[n-1].Marker()
		}
	}
	return all, nil
}
