package command

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/onward-go/outbox/persistence"
)

func (a *app) forgetCommand() *cobra.Command {
	var yes, force bool
	c := &cobra.Command{
		Use:   "forget DISPATCHER",
		Short: "Forget a dispatcher that is no more, so that nothing is owed to it",
		Long: `Forget a dispatcher that is no more: its cursor, failures, counts and subscriptions.
It says first what that means, and wants the dispatcher's name typed, or --yes. It refuses
one that is at work, since somebody holds its lease, unless --force is given.`,
		Args: arguments(1, 1),
		RunE: func(c *cobra.Command, args []string) error {
			return a.writing(c.Context(), false, func(ctx context.Context, outbox connection) error {
				return a.forget(ctx, outbox, args[0], yes, force)
			})
		},
	}
	c.Flags().BoolVar(&yes, "yes", false, "do not ask")
	c.Flags().BoolVar(&force, "force", false, "forget it though somebody holds its lease")
	return c
}

func (a *app) forget(ctx context.Context, outbox connection, dispatcher string, yes, force bool) error {
	state, now, err := loadCursor(ctx, outbox, dispatcher)
	if err != nil {
		return err
	}
	c := change{Dispatcher: dispatcher, From: state.Cursor, Lease: state.Lease.Status(now)}
	if c.Lease.Held && !force {
		return fmt.Errorf("dispatcher %q is at work: %w: %s holds it until %s; stop the services that run it, or say --force",
			dispatcher, persistence.ErrLeaseHeld, c.Lease.Owner, moment(c.Lease.Expires))
	}
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
		p.say("Somebody holds the lease, so it is at work: it loses the lease, and is made anew.")
	}
}
