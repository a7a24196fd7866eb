package command

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/onward-go/outbox/cmd/outboxctl/internal/why"
	"github.com/onward-go/outbox/persistence"
	"github.com/onward-go/outbox/sqltx"
)

func (a *app) whyCommand() *cobra.Command {
	var since instant
	question := why.Question{}
	within := days(24 * time.Hour)
	c := &cobra.Command{
		Use:   "why EVENT_ID",
		Short: "Say what has become of an event, and why it is not delivered",
		Long: `Say what has become of an event at each handler, and what it waits for.

There is no index on ids. A UUIDv7, as the library makes them, tells its time: the
event is looked for around it, in wider and wider steps. Other ids need --since. At
most --most-rows events are looked at, however large the outbox is.

The exit code is 0 if the event is delivered to all its handlers, and 3 otherwise.`,
		Args: arguments(1, 1),
		RunE: func(c *cobra.Command, args []string) error {
			question.EventID, question.Within = args[0], time.Duration(within)
			switch {
			case question.MostRows < 1:
				return usage(c, "--most-rows is %d, it must be at least 1", question.MostRows)
			case question.Within <= 0:
				return usage(c, "--within must be greater than 0")
			}
			err := a.reading(c.Context(), func(ctx context.Context, outbox connection) error {
				return a.explain(ctx, outbox, question, since)
			})
			if errors.Is(err, why.ErrNoTime) {
				return usage(c, "%w; say since when to look for it: --since 2h", err)
			}
			return err
		},
	}
	flags := c.Flags()
	flags.Var(&since, "since", "look for it from this time on, or that long ago: 2026-11-30T07:00:00Z, 2h, 30d")
	flags.Var(&within, "within", "look this far around the time that the id tells")
	flags.IntVar(&question.MostRows, "most-rows", 100_000, "look at so many events at most")
	return c
}

func (a *app) explain(ctx context.Context, outbox connection, question why.Question, since instant) error {
	if since.set {
		mark, err := outbox.SafeMark(ctx)
		if err != nil {
			return err
		}
		question.Since = since.time(mark.Now)
	}
	question.Blind = outbox.dialect == sqltx.SQLite
	report, err := why.Explain(ctx, outbox, question)
	if err != nil {
		return err
	}
	if err := a.show(whyReport(report)); err != nil {
		return err
	}
	if report.Verdict != why.Delivered {
		return errFinding
	}
	return nil
}

type whyReport why.Report

func (r whyReport) text(p *page) {
	p.row("event", r.EventID)
	if e := r.Event; e != nil {
		p.row("type", e.Type)
		p.row("aggregate", e.AggregateType+"/"+e.AggregateID)
		if e.AccountID != "" {
			p.row("account", e.AccountID)
		}
		p.row("committed", moment(e.CreatedTime))
	}
	p.row("verdict", r.Verdict)
	p.gap()
	p.say("%s", r.Summary)
	if len(r.Handlers) > 0 {
		p.gap()
		p.row("HANDLER", "DISPATCHER", "STATE", "DETAIL")
		for _, h := range r.Handlers {
			p.row(h.Handler, or(h.Dispatcher, "-"), h.State, or(h.Detail, "-"))
		}
	}
	for _, h := range r.Handlers {
		if h.LastError != "" {
			p.gap()
			p.say("%s: %s", h.Handler, h.LastError)
		}
	}
	if len(r.Producers) > 0 {
		p.gap()
		producers(p, r.Producers)
	}
	if len(r.Advice) > 0 {
		p.gap()
	}
	for _, advice := range r.Advice {
		p.say("%s", advice)
	}
	if r.Event == nil {
		p.gap()
		p.say("Looked at %s %s.", eventCount(r.Search.Rows), searched(r.Search))
	}
}

func eventCount(n int) string { return counted(persistence.Count{N: n}, "event", "events") }

func searched(s why.Search) string {
	if s.To.IsZero() {
		return "from " + moment(s.From) + " on"
	}
	return fmt.Sprintf("from %s to %s", moment(s.From), moment(s.To))
}

// producers shows open transactions.
func producers(p *page, all []persistence.ProducerStatus) {
	p.row("PRODUCER", "OPEN FOR", "SINCE", "CLIENT", "STATE")
	for _, producer := range all {
		name := "unknown session"
		switch {
		case producer.Prepared != "":
			name = "prepared " + producer.Prepared
		case producer.PID != 0:
			name = fmt.Sprintf("pid %d", producer.PID)
		}
		if producer.Suspected {
			name += " (suspected)"
		}
		p.row(name, age(producer.Age), moment(producer.Began), or(producer.Client, "-"), or(producer.State, "-"))
	}
}

// age shows for how long something has been so.
func age(s persistence.Seconds) string {
	d := s.Duration()
	if d > time.Second {
		d = d.Round(time.Second)
	} else {
		d = d.Round(time.Millisecond)
	}
	return d.String()
}
