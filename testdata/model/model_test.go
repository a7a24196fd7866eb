package model

import (
	"runtime"
	"sync"
	"time"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/persistence"
)

// model is what has to be: which events are committed, in which order, which of
// them are poison, and where each subscription begins. What was applied is read
// from the backend.
type model struct {
	events  []*event // in the order in which they were published
	commits int
	poison  map[effect]*poison
	// interrupted is how often a replica was stopped at work. Each may have cost
	// an event an attempt.
	interrupted int
	faults      int // calls that have failed
	rewinds     int

	begins map[persistence.Subscription]persistence.Cursor // now
	began  map[persistence.Subscription]persistence.Cursor // at first
	// past are what was visible when a handler was registered, and is not owed to it.
	past    map[effect]bool
	highest time.Time // that the safe mark has been
	cursor  persistence.Cursor
	mark    mark
	// countedFrom is from when on an audit finds stray events.
	countedFrom time.Time
	broken      bool // somebody may have stamped behind it
	// setBack is how far the database's clock was set back, altogether.
	setBack time.Duration
}

type event struct {
	events.Event
	committed int // its place in the order of commits; 0 is not
	position  persistence.Cursor
	// stray events are stamped behind what a replica knew to be past. They have
	// to be found, but the cursor need not wait for them.
	stray bool
	// excused ones need not be found.
	excused bool
	dropped bool // by retention
}

// poison says how a handler fails on an event.
type poison struct {
	kind  string
	times int // that are left
	// What it has done so far.
	failures  int
	permanent bool
}

// kills reports whether an event may be a dead letter.
func (m *model) kills(it effect) bool {
	p := m.poison[it]
	if p == nil {
		p = &poison{}
	}
	return p.permanent || p.failures+m.interrupted >= maxAttempts
}

func newModel() *model {
	return &model{
		poison: map[effect]*poison{},
		begins: map[persistence.Subscription]persistence.Cursor{},
		began:  map[persistence.Subscription]persistence.Cursor{},
		past:   map[effect]bool{},
	}
}

// add makes an event.
func (m *model) add(e *event) *event {
	m.events = append(m.events, e)
	return e
}

// mark is the greatest safe mark that was answered. Audits ask for it beside
// everything else.
type mark struct {
	mu sync.Mutex
	at time.Time
}

func (m *mark) answered(at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if at.After(m.at) {
		m.at = at
	}
}

func (m *mark) greatest() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.at
}

// taste is called by a handler, and fails if the event is poison for it.
func (m *model) taste(it effect) error {
	p := m.poison[it]
	if p == nil || p.times == 0 {
		return nil
	}
	p.times--
	p.failures++
	switch p.kind {
	case "permanent":
		p.permanent = true
		return events.Permanent(errPoison)
	case "panic":
		panic(errPoison)
	case "transient":
		p.failures--
		return errTransient
	case "kill":
		return errKilled
	case "exit":
		runtime.Goexit()
		return nil
	default:
		return errPoison
	}
}

// owed reports whether a subscription is to get an event.
func (m *model) owed(s persistence.Subscription, e *event) bool {
	begins, registered := m.begins[s]
	return registered && !m.past[effect{s.Handler, e.ID}] && e.committed > 0 && e.Type == s.EventType && e.position.Compare(begins) > 0
}

// ordered reports whether the promise of order binds an event. It does not for
// whoever stamps rows himself, for a handler that was rewound to before it began,
// nor for what retention has dropped.
func (m *model) ordered(s persistence.Subscription, e *event) bool {
	return m.owed(s, e) && !e.stray && !e.dropped && e.position.Compare(m.began[s]) > 0
}

// rewound is called when an operator has moved the cursor.
func (m *model) rewound(to persistence.Cursor) {
	m.cursor = to
	for s, begins := range m.begins {
		if begins.Compare(to) > 0 {
			m.begins[s] = to
		}
	}
	m.rewinds++
	m.countedFrom = persistence.BucketAfter(to)
	for _, e := range m.events {
		if e.position.Compare(to) <= 0 {
			m.excuse(e)
		}
	}
}

// excuse excuses a stray event where nothing is counted.
func (m *model) excuse(e *event) {
	if e.stray && e.CreatedTime.Before(m.countedFrom) {
		e.excused = true
	}
}
