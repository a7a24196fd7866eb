package why

import (
	"fmt"
	"slices"
)

func (q *inquiry) advise(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(q.report.Advice, text) {
		q.report.Advice = append(q.report.Advice, text)
	}
}

// summarize says the verdict in a sentence, and what to do.
func (q *inquiry) summarize() {
	r := &q.report
	settled := 0
	for _, h := range r.Handlers {
		if h.State == Applied || h.State == Replayed {
			settled++
		}
		q.adviseOn(h)
	}
	sentences := map[Verdict]string{
		Delivered:    "Delivered: no handler has anything left to do.",
		DeadLettered: "Not delivered to every handler: one has given up.",
		Failing:      "Not delivered to every handler: one fails, and is tried again by itself.",
		Blocked:      "Not delivered to every handler: an earlier event of its aggregate is not settled, and order is kept.",
		LeftBehind:   "Not delivered to every handler: one was not deployed where the dispatcher ran.",
		Passed:       "Not delivered to every handler: the cursor has passed the event though it has no marker.",
		Waiting:      "Not delivered to every handler yet: nothing holds it back but its turn.",
		Discarded:    "Not delivered to every handler: an operator has decided so.",
		NoHandler:    fmt.Sprintf("Delivered to nobody: no handler is subscribed to events of type %s, or was so when it was published.", r.Event.Type),
	}
	r.Summary = sentences[r.Verdict]
	if r.Verdict == NoHandler {
		q.advise("Deploy the handler. It begins where its dispatcher is then; to give it this event, rewind the cursor (`outboxctl cursor rewind`), or give it a dispatcher of its own name.")
	}
}

// adviseOn says what to do about one handler.
func (q *inquiry) adviseOn(h Handler) {
	switch h.State {
	case Dead:
		q.advise("Look at the letter with `outboxctl dead show %s %s`, mend the handler, then `outboxctl dead requeue %[1]s %[2]s`, or discard it.", q.EventID, h.Handler)
	case Requeued:
		q.advise("Wait a few seconds; if it stays, no dispatcher at work has the handler %s.", h.Handler)
	case InBackOff:
		q.advise("Mend what handler %s fails on; nothing else is needed. After too many attempts the event becomes a dead letter.", h.Handler)
	case BehindAnother:
		q.advise("Ask `outboxctl why %s` about the event that it waits behind.", h.Behind.ID)
	case HandlerBehind:
		q.advise("Deploy handler %s; whoever takes the lease with it reads again from where it is behind.", h.Handler)
	case CursorPassed:
		q.advise("The audit finds an event that appeared behind the cursor, within minutes. If an operator has moved the cursor ahead, move it back: `outboxctl cursor rewind %s`.", h.Dispatcher)
	case InLine:
		if d := q.dispatcher(h.Dispatcher); !d.Lease.Held {
			q.advise("Start a service that runs dispatcher %s, unless a job runs it now and then.", h.Dispatcher)
		} else {
			q.advise("Ask again in a moment. If it stays, the handler may run for long, or the service may be stuck: its log tells.")
		}
	}
}
