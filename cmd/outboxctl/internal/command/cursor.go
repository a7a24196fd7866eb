package command

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/onward-go/outbox/persistence"
)

func (a *app) cursorCommand() *cobra.Command {
	list := &cobra.Command{
		Use:   "list",
		Short: "List the dispatchers: where each is, and who holds its lease",
		Args:  arguments(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			return a.reading(c.Context(), a.listCursors)
		},
	}
	return parent("cursor", "List, rewind and forget the dispatchers' cursors", list, a.rewindCommand(), a.forgetCommand())
}

type cursorList struct {
	Now     time.Time `json:"now"`
	Cursors []cursor  `json:"cursors"`
}

type cursor struct {
	Dispatcher string             `json:"dispatcher"`
	Position   persistence.Cursor `json:"position"`
	Lease      lease              `json:"lease"`
}

type lease struct {
	State   string    `json:"state"` // held, expired or free
	Owner   string    `json:"owner,omitempty"`
	Token   int64     `json:"token"`
	Expires time.Time `json:"expires,omitzero"`
	Unclean bool      `json:"unclean"`
}

func leaseOf(l persistence.Lease, now time.Time) lease {
	state := "held"
	switch {
	case l.Owner == "":
		state = "free"
	case !l.ExpiresTime.After(now):
		state = "expired"
	}
	return lease{state, l.Owner, l.Token, l.ExpiresTime, l.Unclean}
}

func (l lease) String() string {
	switch l.State {
	case "free":
		return "free"
	case "expired":
		return fmt.Sprintf("expired at %s, was held by %s, who has not released it", moment(l.Expires), l.Owner)
	}
	text := fmt.Sprintf("held by %s until %s", l.Owner, moment(l.Expires))
	if l.Unclean {
		text += ", taken over from one that had not released it"
	}
	return text
}

func (l cursorList) text(p *page) {
	if len(l.Cursors) == 0 {
		p.say("There are no dispatchers: none has run yet.")
		return
	}
	p.row("DISPATCHER", "POSITION", "TOKEN", "LEASE")
	for _, c := range l.Cursors {
		p.row(c.Dispatcher, c.Position, c.Lease.Token, c.Lease)
	}
}

func (a *app) listCursors(ctx context.Context, outbox connection) error {
	mark, err := outbox.SafeMark(ctx)
	if err != nil {
		return err
	}
	states, err := outbox.ListCursors(ctx)
	if err != nil {
		return err
	}
	list := cursorList{Now: mark.Now, Cursors: []cursor{}}
	for _, s := range states {
		list.Cursors = append(list.Cursors, cursor{s.Lease.Dispatcher, s.Cursor, leaseOf(s.Lease, mark.Now)})
	}
	return a.show(list)
}

// loadCursor returns a dispatcher's state, and the database's clock.
func loadCursor(ctx context.Context, outbox connection, dispatcher string) (persistence.State, time.Time, error) {
	mark, err := outbox.SafeMark(ctx)
	if err != nil {
		return persistence.State{}, time.Time{}, err
	}
	state, err := outbox.Load(ctx, dispatcher)
	if err != nil {
		return persistence.State{}, time.Time{}, fmt.Errorf("%w; `outboxctl cursor list` lists the dispatchers", err)
	}
	return state, mark.Now, nil
}
