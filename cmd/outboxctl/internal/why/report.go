package why

import (
	"time"

	"github.com/onward-go/outbox/persistence"
)

// Report is what is known of an event.
type Report struct {
	EventID string  `json:"event_id"`
	Verdict Verdict `json:"verdict"`
	// Summary says the verdict in a sentence.
	Summary string `json:"summary"`
	// Event is nil if it was not found. One that retention has dropped may live on
	// in its dead letters.
	Event    *Event    `json:"event,omitempty"`
	Search   Search    `json:"search"`
	Handlers []Handler `json:"handlers"`
	// Producers are open transactions that may hold the event.
	Producers []persistence.ProducerStatus `json:"producers,omitempty"`
	// Advice is what to do, a sentence each.
	Advice []string `json:"advice,omitempty"`
}

// Verdict is what has become of an event, all its handlers considered: the worst.
type Verdict string

const (
	Delivered    Verdict = "delivered"     // to all its handlers
	DeadLettered Verdict = "dead-lettered" // a handler has given up on it
	Failing      Verdict = "failing"       // a handler is in back-off
	Blocked      Verdict = "blocked"       // it waits behind an event of its aggregate
	LeftBehind   Verdict = "left-behind"   // it waits for a replica that has the handler
	Passed       Verdict = "passed"        // a cursor has passed it without a marker
	Waiting      Verdict = "waiting"       // its turn has not come
	Discarded    Verdict = "discarded"     // an operator has decided so
	NoHandler    Verdict = "no-handler"    // nobody subscribes to its type, or did so in time
	NotVisible   Verdict = "not-visible"   // it may be in a transaction that is open
	Dropped      Verdict = "dropped"       // it would be older than the oldest partition
	NotFound     Verdict = "not-found"     // there is none where it would be
	Unknown      Verdict = "unknown"       // the search ended at its bound
)

// Event is the event, without its payload.
type Event struct {
	CreatedTime   time.Time `json:"created_time"`
	ID            string    `json:"id"`
	Type          string    `json:"event_type"`
	AccountID     string    `json:"account_id"`
	AggregateType string    `json:"aggregate_type"`
	AggregateID   string    `json:"aggregate_id"`
}

// EventOf returns the event of a record.
func EventOf(r persistence.Record) *Event {
	return &Event{r.CreatedTime, r.ID, r.EventType, r.AccountID, r.AggregateType, r.AggregateID}
}

// Search is where the event was looked for.
type Search struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to,omitzero"`
	// Rows is how many events were looked at.
	Rows int `json:"rows"`
	// Complete says that all events of the range were.
	Complete bool `json:"complete"`
}

// Handler is what has become of the event at one handler.
type Handler struct {
	Handler    string `json:"handler"`
	Dispatcher string `json:"dispatcher,omitempty"`
	State      State  `json:"state"`
	// Detail says the state in words.
	Detail    string     `json:"detail,omitempty"`
	Attempts  int        `json:"attempts,omitempty"`
	LastError string     `json:"last_error,omitempty"`
	NextTime  *time.Time `json:"next_time,omitempty"`
	// Behind is the event of the same aggregate that it waits behind, and
	// BehindHandler the handler that has not settled that one.
	Behind        *persistence.Cursor `json:"behind,omitempty"`
	BehindHandler string              `json:"behind_handler,omitempty"`
}

// State is what has become of the event at a handler.
type State string

const (
	Applied       State = "applied"
	Dead          State = "dead"
	Requeued      State = "requeued"
	Replayed      State = "replayed"
	LetterDropped State = "discarded"
	InBackOff     State = "failing"
	BehindAnother State = "blocked"
	HandlerBehind State = "left-behind"
	CursorPassed  State = "passed"
	InLine        State = "waiting"
	TooOld        State = "not-subscribed" // the subscription is younger
)

// verdicts are those of the states, the worst first.
var verdicts = []struct {
	state   State
	verdict Verdict
}{
	{Dead, DeadLettered}, {Requeued, DeadLettered}, {InBackOff, Failing}, {BehindAnother, Blocked}, {HandlerBehind, LeftBehind},
	{CursorPassed, Passed}, {InLine, Waiting}, {LetterDropped, Discarded}, {Applied, Delivered}, {Replayed, Delivered},
}

func verdictOf(handlers []Handler) Verdict {
	for _, v := range verdicts {
		for _, h := range handlers {
			if h.State == v.state {
				return v.verdict
			}
		}
	}
	return NoHandler
}
