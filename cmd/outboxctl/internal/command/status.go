package command

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/onward-go/outbox/persistence"
)

func (a *app) statusCommand() *cobra.Command {
	lag := days(5 * time.Minute)
	c := &cobra.Command{
		Use:   "status [DISPATCHER...]",
		Short: "Show where the outbox and its dispatchers stand, and what is wrong",
		Long: `Show where the outbox and its dispatchers stand: who holds each lease, how far the
cursor is, what fails, what is dead, which producer holds the mark back, and how far
the partitions last.

The exit code is 3 if there is something to look at. What that is, is said last.`,
		RunE: func(c *cobra.Command, names []string) error {
			return a.reading(c.Context(), func(ctx context.Context, outbox connection) error {
				return a.status(ctx, outbox, names, time.Duration(lag))
			})
		},
	}
	c.Flags().Var(&lag, "max-lag", "how old the oldest event that is not settled may be, and how long a producer may be open")
	return c
}

type statusReport struct {
	persistence.Status
	Problems []string `json:"problems"`
}

func (a *app) status(ctx context.Context, outbox connection, names []string, lag time.Duration) error {
	status, missing := outbox.ReadStatus(ctx, names...)
	if missing != nil && (!errors.Is(missing, persistence.ErrNotFound) || status.Now.IsZero()) {
		return missing
	}
	report := statusReport{status, problems(status, lag)}
	if err := a.show(report); err != nil {
		return err
	}
	if missing != nil {
		return missing
	}
	if len(report.Problems) > 0 {
		return errFinding
	}
	return nil
}

func (r statusReport) text(p *page) {
	p.row("now", moment(r.Now))
	p.row("mark", markText(r.OutboxStatus))
	for _, part := range r.Partitions {
		p.row("partitions", fmt.Sprintf("%s: until %s", part.Table, date(part.Through)))
	}
	if len(r.Producers) > 0 {
		p.gap()
		producers(p, r.Producers)
	}
	for _, d := range r.Dispatchers {
		p.gap()
		dispatcherText(p, d, r.OutboxStatus)
	}
	p.gap()
	if len(r.Problems) == 0 {
		p.say("Nothing is wrong.")
	}
	for _, problem := range r.Problems {
		p.say("! %s", problem)
	}
}

// notRead stands for what could not be read; the problems say why.
const notRead = "could not be read"

func markText(s persistence.OutboxStatus) string {
	switch {
	case s.IsUnread(persistence.StatusMark, ""):
		return notRead
	case s.Mark.IsZero():
		return "not known to this process yet"
	case s.MarkAge > 0:
		return moment(s.Mark) + ", held back for " + age(s.MarkAge)
	}
	return moment(s.Mark)
}

func dispatcherText(p *page, d persistence.DispatcherStatus, outbox persistence.OutboxStatus) {
	unread := func(part persistence.StatusPart) bool { return outbox.IsUnread(part, d.Dispatcher) }
	p.row("dispatcher", d.Dispatcher)
	p.row("lease", leaseText(d.Lease))
	p.row("cursor", d.Cursor)
	ahead := counted(d.After, "event", "events") + " after the cursor"
	if d.Oldest != nil {
		ahead += fmt.Sprintf(", the oldest %s, for %s", d.Oldest.ID, age(d.OldestAge))
	}
	if unread(persistence.StatusAfter) {
		ahead = notRead
	}
	p.row("ahead", ahead)
	if unread(persistence.StatusDeadLetters) {
		p.row("letters", notRead)
	}
	for _, state := range []persistence.DeadLetterState{persistence.DeadLetterDead, persistence.DeadLetterRequeued} {
		if n, some := d.DeadLetters[state]; some {
			p.row("letters", fmt.Sprintf("%s %s", countText(n), state))
		}
	}
	if unread(persistence.StatusBehind) {
		p.row("behind", notRead)
	}
	if unread(persistence.StatusFailing) {
		p.row("failing", notRead)
	}
	for _, b := range d.Behind {
		p.row("behind", fmt.Sprintf("%s of %s, from %s", b.Handler, b.EventType, b.Behind))
	}
	if len(d.Failing) == 0 {
		return
	}
	p.gap()
	p.row("FAILING EVENT", "HANDLER", "ATTEMPTS", "NEXT", "ERROR")
	for _, f := range d.Failing {
		p.row(f.Event.ID, f.Handler, f.Attempts, moment(f.NextTime), or(f.LastError, "-"))
	}
	if more := d.FailingCount.N - len(d.Failing); more > 0 {
		p.say("... and %d more", more)
	}
}

func countText(c persistence.Count) string {
	if c.More {
		return fmt.Sprintf("more than %d", c.N)
	}
	return fmt.Sprint(c.N)
}

// counted says how many there are of something.
func counted(c persistence.Count, one, many string) string {
	if c.N == 1 && !c.More {
		many = one
	}
	return countText(c) + " " + many
}

// problems says what is wrong, and what to do.
func problems(s persistence.Status, lag time.Duration) []string {
	all := []string{}
	add := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	if len(s.Producers) > 0 && s.Producers[0].Age.Duration() > lag {
		add("A producer's transaction has been open for %s and holds the mark back: end its session if it is stuck.", age(s.Producers[0].Age))
	}
	for _, u := range s.Unread {
		part := strings.ReplaceAll(string(u.Part), "_", " ")
		if u.Of != "" {
			part += " of " + u.Of
		}
		add("The part %q could not be read: %s", part, u.Error)
	}
	for _, part := range s.Partitions {
		if !part.RefusesFrom.IsZero() {
			add("%s refuses events from %s on, since a run of retention was killed: run `outboxctl retention run`, which ends it.", part.Table, date(part.RefusesFrom))
		}
		if part.Ahead.Duration() < monthAhead {
			add("Partitions of %s last until %s only: run `outboxctl retention run`, and see why the scheduled one does not.", part.Table, date(part.Through))
		}
		if len(part.Detaching) > 0 {
			add("Partition %s of %s is being dropped, and nothing can be written to its range: run `outboxctl retention run`, which ends it.", part.Detaching[0], part.Table)
		}
	}
	if len(s.Dispatchers) == 0 && !s.IsUnread(persistence.StatusDispatchers, "") {
		add("There are no dispatchers: none has run yet.")
	}
	for _, d := range s.Dispatchers {
		for _, problem := range dispatcherProblems(d, lag) {
			add("%s: %s", d.Dispatcher, problem)
		}
	}
	return all
}

// monthAhead is how long partitions last at least, after a run of retention that
// was missed once or twice.
const monthAhead = 31 * 24 * time.Hour

func dispatcherProblems(d persistence.DispatcherStatus, lag time.Duration) (all []string) {
	add := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	if d.Lease.Owner != "" && !d.Lease.Held {
		add("the lease of %s expired at %s, and nobody has taken it: start a replica.", d.Lease.Owner, moment(d.Lease.Expires))
	}
	if d.OldestAge.Duration() > lag {
		add("the oldest event after its cursor is %s old: ask `outboxctl why %s`.", age(d.OldestAge), d.Oldest.ID)
	}
	if d.FailingCount.N > 0 {
		add("%s: mend what the errors say.", counted(d.FailingCount, "delivery fails and is tried again", "deliveries fail and are tried again"))
	}
	if n := d.DeadLetters[persistence.DeadLetterDead]; n.N > 0 {
		add("%s: `outboxctl dead list --state dead`.", counted(n, "dead letter waits for an operator", "dead letters wait for an operator"))
	}
	for _, b := range d.Behind {
		add("handler %s is behind: deploy it, or let it be forgotten.", b.Handler)
	}
	return all
}
