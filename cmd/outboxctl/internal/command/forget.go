package command

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/onward-go/outbox/persistence"
)

func (a *app) forgetCommand() *cobra.Command {
	var yes bool
	c := &cobra.Command{
		Use:   "forget DISPATCHER",
		Short: "Forget a dispatcher that is no more, so that nothing is owed to it",
		Long: `Forget a dispatcher that is no more: its cursor, failures, counts and subscriptions.
It says first what that means, and wants the dispatcher's name typed, or --yes.`,
		Args: arguments(1, 1),
		RunE: func(c *cobra.Command, args []string) error {
			return a.writing(c.Context(), false, func(ctx context.Context, outbox connection) error {
				return a.forget(ctx, outbox, args[0], yes)
			})
		},
	}
	c.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return c
}

func (a *app) forget(ctx context.Context, outbox connection, dispatcher string, yes bool) error {
	state, now, err := loadCursor(ctx, outbox, dispatcher)
	if err != nil {
		return err
	}
	c := change{Dispatcher: dispatcher, From: state.Cursor, Lease: state.Lease.Status(now)}
	if c.Events, c.More, err = countEvents(ctx, outbox, state.Cursor, persistence.Cursor{}); err != nil {
		return err
	}
	subscriptions, err := outbox.ListSubscriptions(ctx)
	if err != nil {
		return err
	}
	for _, s := range subscriptions {
		if s.Dispatcher == dispatcher {
			c.Subscribed = append(c.Subscribed, s.Handler)
		}
	}
	return a.guarded(yes, dispatcher, &c, c.describeForget, func() error { return outbox.Forget(ctx, dispatcher) })
}

func (c change) describeForget(p *page) {
	p.row("dispatcher", c.Dispatcher)
	p.row("lease", leaseText(c.Lease))
	p.row("cursor", c.From)
	for _, handler := range c.Subscribed {
		p.row("handler", handler)
	}
	p.gap()
	p.say("After the cursor: %s. Nothing is owed to this dispatcher any more, and retention may drop it.", c.count())
	p.say("Its dead letters and the markers of its handlers stay. If a service still runs it, it is made anew, and begins where its configuration says.")
	if c.Lease.Held {
		p.say("Somebody holds the lease, so it seems to be at work: stop it first.")
	}
}
