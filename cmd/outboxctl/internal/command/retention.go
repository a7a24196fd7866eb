package command

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/onward-go/outbox/persistence"
)

func (a *app) retentionCommand() *cobra.Command {
	return parent("retention", "Make partitions ahead, and drop those that are settled and old",
		a.retention("run", "Make partitions, drop those that ended longer than --keep ago and are owed to nobody, and free old dedup keys", false),
		a.retention("plan", "Say what run would do", true))
}

func (a *app) retention(use, short string, dryRun bool) *cobra.Command {
	options := persistence.RetentionOptions{DryRun: dryRun}
	var keep days
	var keepKeys days
	c := &cobra.Command{
		Use:   use,
		Short: short,
		Long:  short + ".\nThe exit code is 3 if events are kept because a dispatcher has not settled them.",
		Args:  arguments(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			if !c.Flags().Changed("keep") {
				return usage(c, "say for how long events are kept: --keep 90d")
			}
			options.KeepKeys = time.Duration(keepKeys)
			return a.writing(c.Context(), false, func(ctx context.Context, outbox connection) error {
				report, err := persistence.Retain(ctx, outbox, time.Duration(keep), options)
				return a.showRetention(report, options.DryRun, err)
			})
		},
	}
	flags := c.Flags()
	flags.Var(&keep, "keep", "how long events are kept, such as 90d; needed")
	flags.Var(&keepKeys, "keep-keys", "how long dedup keys are kept (default 30d)")
	flags.BoolVar(&options.NoConsumers, "no-consumers", false, "drop what no dispatcher has read: nobody reads this outbox through one")
	flags.DurationVar(&options.LockTimeout, "lock-timeout", 0, fmt.Sprintf("how long others may have to wait for one statement (default %s)", persistence.DefaultLockTimeout))
	return c
}

type retentionReport struct {
	DryRun     bool        `json:"dry_run"`
	Now        time.Time   `json:"now"`
	Created    []partition `json:"created"`
	Dropped    []partition `json:"dropped"`
	PurgedKeys int         `json:"purged_keys"`
	Kept       string      `json:"kept,omitempty"` // why events are kept that are old enough
}

type partition struct {
	Table string    `json:"table"`
	Name  string    `json:"name,omitempty"`
	From  time.Time `json:"from,omitzero"`
	To    time.Time `json:"to,omitzero"`
}

func partitions(all []persistence.Partition) []partition {
	out := []partition{}
	for _, p := range all {
		out = append(out, partition(p))
	}
	return out
}

func (r retentionReport) text(p *page) {
	made, dropped := "made", "dropped"
	if r.DryRun {
		made, dropped = "to make", "to drop"
	}
	if len(r.Created)+len(r.Dropped) == 0 {
		p.say("No partition %s, none %s.", made, dropped)
	} else {
		p.row("ACTION", "TABLE", "PARTITION", "FROM", "TO")
	}
	for _, list := range []struct {
		what string
		all  []partition
	}{{made, r.Created}, {dropped, r.Dropped}} {
		for _, part := range list.all {
			p.row(list.what, part.Table, or(part.Name, "(rows)"), date(part.From), date(part.To))
		}
	}
	if !r.DryRun {
		p.say("%d dedup keys freed.", r.PurgedKeys)
	}
	if r.Kept != "" {
		p.gap()
		p.say("Kept though old enough: %s", r.Kept)
		p.say("`outboxctl status` shows how far each dispatcher is; `outboxctl cursor forget` forgets one that is no more.")
	}
}

// date shows a partition's bound.
func date(t time.Time) string {
	switch {
	case t.IsZero():
		return "-"
	case t.Equal(t.Truncate(24 * time.Hour)):
		return t.UTC().Format(time.DateOnly)
	}
	return moment(t)
}

// showRetention prints what was done, also before an error.
func (a *app) showRetention(report persistence.RetentionReport, dryRun bool, err error) error {
	if report.Now.IsZero() {
		return err
	}
	r := retentionReport{
		DryRun: dryRun, Now: report.Now, PurgedKeys: report.PurgedKeys,
		Created: partitions(report.Created), Dropped: partitions(report.Dropped),
	}
	owed := errors.Is(err, persistence.ErrOwed)
	if owed {
		r.Kept, err = err.Error(), nil
	}
	if showErr := a.show(r); showErr != nil || err != nil {
		return errors.Join(err, showErr)
	}
	if owed {
		return errFinding
	}
	return nil
}
