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
	Dispatcher string                  `json:"dispatcher"`
	Position   persistence.Cursor      `json:"position"`
	Lease      persistence.LeaseStatus `json:"lease"`
}

// leaseText says who holds a lease.
func leaseText(l persistence.LeaseStatus) string {
	switch {
	case l.Owner == "":
		return "free"
	case !l.Held:
		return fmt.Sprintf("expired at %s, was held by %s, who has not released it", moment(l.Expires), l.Owner)
	case l.Unclean:
		return fmt.Sprintf("held by %s until %s, taken over from one that had not released it", l.Owner, moment(l.Expires))
	}
	return fmt.Sprintf("held by %s until %s", l.Owner, moment(l.Expires))
}

func (l cursorList) text(p *page) {
	if len(l.Cursors) == 0 {
		p.say("There are no dispatchers: none has run yet.")
		return
	}
	p.row("DISPATCHER", "POSITION", "TOKEN", "LEASE")
	for _, c := range l.Cursors {
		p.row(c.Dispatcher, c.Position, c.Lease.Token, leaseText(c.Lease))
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
		list.Cursors = append(list.Cursors, cursor{s.Lease.Dispatcher, s.Cursor, s.Lease.Status(mark.Now)})
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
