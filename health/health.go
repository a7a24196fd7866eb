package health

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/internal/usercode"
	"github.com/onward-go/outbox/persistence"
)

// Source is what a handler asks: an [events.Dispatcher].
type Source interface {
	Status(ctx context.Context) (events.Status, error)
}

// Defaults of a handler.
const (
	DefaultMaxLag  = time.Minute
	DefaultTimeout = 5 * time.Second
)

// Report is the answer's body, as JSON.
type Report struct {
	// Ready says that nothing is wrong; the status code is 200, and otherwise 503.
	Ready bool `json:"ready"`
	// Problems say what is wrong.
	Problems []string `json:"problems"`
	// Unread are the parts of the status that could not be read, and count for nothing
	// here. The log says why.
	Unread []persistence.StatusPart `json:"unread,omitempty"`

	Dispatcher string              `json:"dispatcher,omitempty"`
	Polling    bool                `json:"polling"`    // Poll runs in this process
	Working    bool                `json:"working"`    // this process holds the lease
	LeaseHeld  bool                `json:"lease_held"` // some process does
	Lag        persistence.Seconds `json:"lag_seconds"`
	MarkAge    persistence.Seconds `json:"mark_age_seconds"`
	Failing    persistence.Count   `json:"failing"`
	Dead       persistence.Count   `json:"dead"` // letters that wait for an operator

	// Status is everything, with [WithDetails].
	Status *events.Status `json:"status,omitempty"`
}

// Handler returns a handler of GET and HEAD. It answers 200 if the database
// answers and the dispatcher's lag is small enough, and otherwise 503. A part of the status
// that cannot be read is no problem, but for the lag. A dispatcher that has not run yet has
// as long as the lag may be, from the call of Handler, for its first pass. The body is
// a [Report], without error texts, names of sessions or payloads, so that it may be
// shown to anybody who may know how busy the outbox is.
//
// It is meant for readiness and alerts, not for liveness: to start the process again
// brings no database back. It is safe for concurrent use. What is wrong with the
// options is answered with 500 to every request.
func Handler(source Source, opts ...Option) http.Handler {
	h := &handler{source: source, maxLag: DefaultMaxLag, timeout: DefaultTimeout, made: time.Now(), log: slog.New(slog.DiscardHandler)}
	h.logCalls = usercode.NewCalls("the logger", new(atomic.Int64), nil)
	if source == nil {
		h.refuse("the dispatcher is nil")
	}
	for i, opt := range opts {
		if opt == nil {
			h.refuse("option %d is nil", i)
			continue
		}
		opt(h)
	}
	return h
}

type handler struct {
	source   Source
	maxLag   time.Duration
	timeout  time.Duration
	polling  bool
	details  bool
	made     time.Time
	log      *slog.Logger
	logCalls *usercode.Calls
	invalid  error
}

func (h *handler) refuse(format string, args ...any) {
	if h.invalid == nil {
		h.invalid = fmt.Errorf("health: %w: %s", persistence.ErrInvalid, fmt.Sprintf(format, args...))
	}
}

// ServeHTTP implements http.Handler.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "use GET", http.StatusMethodNotAllowed)
		return
	case h.invalid != nil:
		http.Error(w, h.invalid.Error(), http.StatusInternalServerError)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), h.timeout)
	defer cancel()
	report := h.report(ctx)
	text, err := json.Marshal(report)
	if err != nil {
		http.Error(w, "the report could not be written", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	if !report.Ready {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_, _ = w.Write(append(text, '\n')) // whoever has asked may be gone
}

// report asks the dispatcher. An error is logged, not shown: a driver may put names
// of hosts and users into it.
func (h *handler) report(ctx context.Context) Report {
	status, err := h.source.Status(ctx)
	if err != nil {
		h.log.LogAttrs(ctx, slog.LevelWarn, "outbox: health check failed", slog.Any("error", err))
		h.logCalls.Drain(usercode.Patience) // a logger that does not return holds up no answer for longer
		return Report{Problems: []string{"the status could not be read; the log says why"}}
	}
	r := Report{
		Problems:   []string{},
		Dispatcher: status.Dispatcher,
		Polling:    status.Polling,
		Working:    status.Working,
		LeaseHeld:  status.Lease.Held,
		Lag:        status.Lag,
		MarkAge:    status.MarkAge,
		Failing:    status.FailingCount,
		Dead:       status.DeadLetters[persistence.DeadLetterDead],
	}
	if len(status.Unread) > 0 {
		h.log.LogAttrs(ctx, slog.LevelWarn, "outbox: health check could not read all", slog.Any("unread", status.Unread))
		h.logCalls.Drain(usercode.Patience)
		for _, u := range status.Unread {
			if !slices.Contains(r.Unread, u.Part) {
				r.Unread = append(r.Unread, u.Part)
			}
		}
	}
	if status.IsUnread(persistence.StatusLag, "") {
		r.Problems = append(r.Problems, "the lag could not be read; the log says why")
	}
	if waited := time.Since(h.made); status.New && waited > h.maxLag {
		r.Problems = append(r.Problems, fmt.Sprintf("the dispatcher has not run yet, or was forgotten; this check is %s old, the limit is %s", waited.Round(time.Second), h.maxLag))
	}
	if status.Lag.Duration() > h.maxLag {
		r.Problems = append(r.Problems, fmt.Sprintf("the oldest event that is not settled is %s old, the limit is %s", status.Lag.Duration().Round(time.Second), h.maxLag))
	}
	if h.polling && !status.Polling {
		r.Problems = append(r.Problems, "Poll does not run in this process")
	}
	r.Ready = len(r.Problems) == 0
	if h.details {
		r.Status = &status
	}
	return r
}
