package model

import (
	"fmt"
	"slices"
	"strings"
	"testing/synctest"
	"time"

	"github.com/onward-go/outbox/persistence"
)

// passesAudit is how far behind the cursor RunOnce looks for stray events. Poll
// looks a day back.
const passesAudit = 10 * time.Minute

// finish is how the last replica settles what is left.
type finish struct {
	polls  bool
	config config
}

// settle ends a sequence: transactions are committed, poison is none any more, whoever
// stands still goes on, and a new replica settles what is left.
func (m *machine) settle(f finish) {
	for len(m.open) > 0 {
		m.end(m.open[0], false)
	}
	m.check()
	m.poison = heal(m.poison)
	m.checkNothingIsIdle()
	m.goOn()
	m.check()
	m.sleep(lease + m.setBack) // the lease has expired, and the clock has caught up
	f.config.upgraded = true
	last := m.deploy("last", f.config)
	m.replicas[0] = last
	if f.polls {
		last.poll(100)
		for idle := 0; idle < 5; idle++ {
			before := m.progress()
			m.advance(last, 0, 0)
			m.sleep(backOff)
			m.check()
			if m.progress() != before {
				idle = 0
			}
		}
		m.goOn()
	} else {
		m.passes(last)
	}
	m.check()
	m.checkNothingIsLeft(f)
	again := m.deploy("again", f.config)
	m.replicas[0] = again
	again.pass(100)
	m.advance(again, 0, 0)
	m.check()
	if again.last != nil || again.d.Stats().LateEvents > 0 {
		m.t.Fatalf("once more: %v, %d late events", again.last, again.d.Stats().LateEvents)
	}
	for it, state := range m.look().letters {
		if state == persistence.DeadLetterRequeued {
			m.violated("event %s stays requeued for handler %s", it.event, it.handler)
		}
	}
	m.report()
}

// progress tells whether anything has moved.
func (m *machine) progress() string {
	s := m.look()
	var b strings.Builder
	fmt.Fprint(&b, s.Cursor, len(s.at))
	for _, sub := range subscriptions {
		fmt.Fprint(&b, s.behind[sub])
	}
	return b.String()
}

// passes makes passes until two in a row have nothing to do: what was behind may
// hide from the first what an audit finds in the second.
func (m *machine) passes(r *replica) {
	for idle, n := 0, 0; idle < 2; n++ {
		r.pass(3)
		m.advance(r, 0, 0)
		m.check()
		if idle++; r.last != nil || r.passed > 0 {
			idle = 0
		}
		if n > 100 {
			m.t.Fatalf("passes do not come to an end: %v", r.last)
		}
	}
}

// heal keeps what was tasted, and has no more of it.
func heal(all map[effect]*poison) map[effect]*poison {
	for _, p := range all {
		p.times = 0
	}
	return all
}

// checkNothingIsLeft: every committed event was applied by, or is a dead letter
// of, every handler to which it is owed.
func (m *machine) checkNothingIsLeft(f finish) {
	synctest.Wait()
	s := m.look()
	for _, e := range m.events {
		if e.stray && !f.polls && e.CreatedTime.Before(s.Cursor.CreatedTime.Add(-passesAudit)) {
			e.excused = true
		}
		for _, sub := range subscriptions {
			if m.owed(sub, e) && !e.excused && !e.dropped && !s.settled(sub, e) {
				m.violated("event %s is lost for handler %s", e.ID, sub.Handler)
			}
			if e.committed > 0 && !e.stray && !e.dropped && e.position.Compare(s.Cursor) > 0 {
				m.violated("the cursor stays at %s, before event %s", s.Cursor, e.ID)
			}
		}
	}
	for sub, behind := range s.behind {
		if behind != nil {
			m.violated("%v stays behind, at %s", sub, behind)
		}
	}
	for _, a := range s.Attempts {
		excused := slices.ContainsFunc(m.events, func(e *event) bool { return e.ID == a.Event.ID && e.excused })
		if m.faults == 0 && !excused { // one whose answer was lost stays until it is pruned
			m.violated("%d failures of event %s, handler %s, are not forgotten", a.Attempts, a.Event, a.Handler)
		}
	}
	m.checkNoAlarm()
	m.report()
}

// checkNoAlarm: without stray events nobody tells of any, but one who has not
// heard yet of a rewind, and compares with what is counted since.
func (m *machine) checkNoAlarm() {
	for i, r := range m.replicas {
		late := r.d.Stats().LateEvents
		if late > 0 && !m.broken && (i == 0 || m.rewinds == 0) {
			m.violated("%s: %d late events, and nobody has stamped any", r, late)
		}
	}
}
