package command

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/persistence"
)

func (a *app) deadCommand() *cobra.Command {
	return parent("dead", "List, show, requeue and discard dead letters", a.deadList(), a.deadShow(),
		a.deadMove("requeue", "Have dead letters replayed by their dispatcher", "requeued", (*events.DeadLetters).Requeue, persistence.DeadLetterDead),
		a.deadMove("discard", "Settle dead letters that are not to be applied", "discarded", (*events.DeadLetters).Discard, persistence.DeadLetterDead, persistence.DeadLetterRequeued))
}

func lettersOf(outbox connection) *events.DeadLetters { return events.NewDeadLetters(outbox, outbox) }

// letterFilters are the flags that select letters.
func letterFilters(flags *pflag.FlagSet, q *persistence.DeadLetterQuery) {
	flags.StringVar(&q.Dispatcher, "dispatcher", "", "letters of this dispatcher")
	flags.StringVar(&q.Handler, "handler", "", "letters of this handler")
	flags.StringVar(&q.EventType, "type", "", "letters of events of this type")
	flags.StringVar(&q.AccountID, "account", "", "letters of this account")
	flags.StringVar(&q.AggregateType, "aggregate-type", "", "letters of aggregates of this type")
	flags.StringVar(&q.AggregateID, "aggregate-id", "", "letters of the aggregate with this id")
}

// letter is a dead letter as it is shown.
type letter struct {
	Event         persistence.Cursor          `json:"event"`
	Handler       string                      `json:"handler"`
	Dispatcher    string                      `json:"dispatcher"`
	State         persistence.DeadLetterState `json:"state"`
	Attempts      int                         `json:"attempts"`
	DeadTime      time.Time                   `json:"dead_time"`
	LastError     string                      `json:"last_error"`
	Type          string                      `json:"event_type"`
	AccountID     string                      `json:"account_id"`
	AggregateType string                      `json:"aggregate_type"`
	AggregateID   string                      `json:"aggregate_id"`
	*payload
}

func letterOf(l persistence.DeadLetter) letter {
	r := l.Record
	return letter{
		r.Cursor(), l.Handler, l.Dispatcher, l.State, l.Attempts, l.DeadTime, l.LastError,
		r.EventType, r.AccountID, r.AggregateType, r.AggregateID, nil,
	}
}

// key names a letter, for --after.
func (l letter) key() string { return l.Event.String() + " " + l.Handler }

func parseKey(text string) (m persistence.Marker, err error) {
	position, handler, found := strings.Cut(text, " ")
	m.Handler = handler
	if m.Event, err = parsePosition(position); err == nil && (!found || m.Event.ID == "") {
		err = fmt.Errorf("%q is no letter's key: TIME/EVENT_ID HANDLER, in quotes, as the list ends with it", text)
	}
	return m, err
}

func (a *app) deadList() *cobra.Command {
	var query persistence.DeadLetterQuery
	var state, after string
	c := &cobra.Command{
		Use:   "list",
		Short: "List dead letters, a page at a time",
		Args:  arguments(0, 0),
		RunE: func(c *cobra.Command, _ []string) (err error) {
			query.State, query.WithoutPayload = persistence.DeadLetterState(state), true
			if !knownState(query.State) {
				return usage(c, "--state %s: it is dead, requeued, replayed or discarded", state)
			}
			if after != "" {
				if query.After, err = parseKey(after); err != nil {
					return usage(c, "--after: %w", err)
				}
			}
			if err := persistence.CheckLimit(query.Limit); err != nil {
				return usage(c, "%w", err)
			}
			return a.reading(c.Context(), func(ctx context.Context, outbox connection) error { return a.listLetters(ctx, outbox, query) })
		},
	}
	flags := c.Flags()
	flags.StringVar(&state, "state", "", "dead, requeued, replayed or discarded (default all)")
	flags.StringVar(&query.EventID, "event", "", "letters of the event with this id")
	letterFilters(flags, &query)
	flags.IntVar(&query.Limit, "limit", 50, "list so many at most")
	flags.StringVar(&after, "after", "", "the key that the page before ended with")
	return c
}

func knownState(s persistence.DeadLetterState) bool {
	switch s {
	case "", persistence.DeadLetterDead, persistence.DeadLetterRequeued, persistence.DeadLetterReplayed, persistence.DeadLetterDiscarded:
		return true
	}
	return false
}

type letterList struct {
	Letters []letter `json:"letters"`
	// After is the key for the next page, if there may be one.
	After string `json:"after,omitempty"`
}

func (a *app) listLetters(ctx context.Context, outbox connection, query persistence.DeadLetterQuery) error {
	page, err := lettersOf(outbox).List(ctx, query)
	if err != nil {
		return err
	}
	list := letterList{Letters: []letter{}}
	for _, l := range page {
		list.Letters = append(list.Letters, letterOf(l))
	}
	if n := len(page); n == query.Limit {
		list.After = list.Letters[n-1].key()
	}
	return a.show(list)
}

func (l letterList) text(p *page) {
	if len(l.Letters) == 0 {
		p.say("No dead letters.")
		return
	}
	p.row("EVENT", "HANDLER", "STATE", "ATTEMPTS", "SINCE", "TYPE", "ERROR")
	for _, letter := range l.Letters {
		p.row(letter.Event.ID, letter.Handler, letter.State, letter.Attempts, moment(letter.DeadTime), letter.Type, shortened(letter.LastError))
	}
	if l.After != "" {
		p.gap()
		p.say("There may be more: --after %q", l.After)
	}
}

// shortened is the beginning of a text, which stands in one line of a table.
func shortened(text string) string {
	const most = 80
	text, _, _ = strings.Cut(text, "\n")
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most-3]) + "..."
	}
	return text
}
