package model

import (
	"maps"
	"slices"
	"strings"
	"testing/synctest"
	"time"

	"github.com/onward-go/outbox/persistence"
)

// state is what the backend has to show.
type state struct {
	persistence.State
	at      map[effect]int // when a handler was applied
	letters map[effect]persistence.DeadLetterState
	behind  map[persistence.Subscription]*persistence.Cursor
}

// settled reports whether a subscription has done with an event.
func (s state) settled(sub persistence.Subscription, e *event) bool {
	it := effect{sub.Handler, e.ID}
	_, applied := s.at[it]
	_, dead := s.letters[it]
	return applied || dead
}

// check compares the backend with the model, wherever the replicas stand.
func (m *machine) check() {
	synctest.Wait()
	m.lookAtMark()
	s := m.look()
	m.checkEffects(s)
	m.checkCursor(s)
	m.checkOrder(s)
	m.checkLease(s)
	m.report()
}

// report fails the run if a promise was broken.
func (m *machine) report() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.violations) > 0 {
		slices.Sort(m.violations) // the shrinker wants the same failure for the same sequence
		m.t.Fatalf("%s", strings.Join(m.violations, "\n"))
	}
}

// look reads the state, and notes what is new: subscriptions.
func (m *machine) look() state {
	s := state{at: map[effect]int{}, letters: map[effect]persistence.DeadLetterState{}, behind: map[persistence.Subscription]*persistence.Cursor{}}
	for i, it := range m.applied(m.ctx) {
		if _, twice := s.at[it]; twice {
			m.violated("handler %s was applied to event %s twice", it.handler, it.event)
		}
		s.at[it] = i
	}
	letters, err := m.DeadLetters.ListDeadLetters(m.ctx, persistence.DeadLetterQuery{Limit: 10_000})
	if err != nil {
		m.t.Fatalf("dead letters: %v", err)
	}
	for _, l := range letters {
		s.letters[effect{l.Handler, l.Record.ID}] = l.State
	}
	states, err := m.Admin.ListCursors(m.ctx)
	if err != nil || len(states) == 0 { // nobody has created the dispatcher
		return s
	}
	if s.State, err = m.Cursors.Load(m.ctx, dispatcherName); err != nil {
		m.t.Fatalf("load: %v", err)
	}
	listed, err := m.Cursors.ListSubscriptions(m.ctx)
	if err != nil {
		m.t.Fatalf("subscriptions: %v", err)
	}
	for _, l := range listed {
		s.behind[l.Subscription] = l.Behind
		if _, known := m.begins[l.Subscription]; !known {
			m.begins[l.Subscription], m.began[l.Subscription] = l.Start, l.Start
			m.checkBegin(s, l)
		}
		if l.Start != m.begins[l.Subscription] {
			m.violated("%v begins at %s instead of %s", l.Subscription, l.Start, m.begins[l.Subscription])
		}
	}
	return s
}

// checkBegin: a subscription begins at the cursor, or at the safe mark of its
// registration, beyond which what was visible has got its markers and is not owed.
func (m *machine) checkBegin(s state, l persistence.SubscriptionState) {
	latest := s.Cursor.CreatedTime
	if m.highest.After(latest) {
		latest = m.highest
	}
	if l.Start.Compare(m.cursor) < 0 || l.Start.CreatedTime.After(latest) {
		m.violated("%v begins at %s, the cursor was at %s, and the safe mark at %s", l.Subscription, l.Start, m.cursor, m.highest)
	}
	for _, e := range m.events {
		it := effect{l.Handler, e.ID}
		if _, known := s.at[it]; known || e.committed == 0 || e.Type != l.EventType || s.letters[it] != "" {
			continue
		}
		applied, err := m.Idempotency.Applied(m.ctx, persistence.Marker{Event: e.position, Handler: l.Handler})
		if err != nil {
			m.t.Fatalf("markers: %v", err)
		}
		m.past[it] = applied[0]
	}
}

// lookAtMark notes how far the safe mark has been.
func (m *machine) lookAtMark() {
	mark, err := m.Outbox.SafeMark(m.ctx)
	if err != nil {
		m.t.Fatalf("safe mark: %v", err)
	}
	if mark.Time.After(m.highest) {
		m.highest = mark.Time
	}
}

// checkEffects: nothing takes effect that was not committed or is not owed,
// nothing is dead but poison, and a dead letter takes effect if and only if it
// says that it was replayed.
func (m *machine) checkEffects(s state) {
	owed := map[effect]bool{}
	for _, e := range m.events {
		for _, sub := range subscriptions {
			owed[effect{sub.Handler, e.ID}] = owed[effect{sub.Handler, e.ID}] || m.owed(sub, e)
		}
	}
	for it := range s.at {
		if !owed[it] {
			m.violated("handler %s was applied to event %s, which was not committed, or lies before the handler's begin", it.handler, it.event)
		}
		if state, dead := s.letters[it]; dead && state != persistence.DeadLetterReplayed {
			m.violated("event %s is a %s letter of handler %s, which was applied to it", it.event, state, it.handler)
		}
	}
	for it, state := range s.letters {
		if _, applied := s.at[it]; state == persistence.DeadLetterReplayed && !applied {
			m.violated("event %s is a replayed letter of handler %s, which was not applied to it", it.event, it.handler)
		}
		if !owed[it] || !m.kills(it) {
			m.violated("event %s is a dead letter of handler %s, and was not poison", it.event, it.handler)
		}
	}
}

// checkCursor: the cursor does not go back, and passes nothing that is owed.
func (m *machine) checkCursor(s state) {
	if s.Cursor.Compare(m.cursor) < 0 {
		m.violated("the cursor has gone back from %s to %s", m.cursor, s.Cursor)
	}
	m.cursor = s.Cursor
	for _, e := range m.events {
		for _, sub := range subscriptions {
			behind := s.behind[sub] != nil && e.position.Compare(*s.behind[sub]) > 0
			if m.owed(sub, e) && !e.stray && !e.dropped && !behind && e.position.Compare(s.Cursor) <= 0 && !s.settled(sub, e) {
				m.violated("the cursor has passed event %s, which handler %s has not settled", e.ID, sub.Handler)
			}
		}
	}
}

// checkOrder: of an aggregate a handler sees first what was committed first.
func (m *machine) checkOrder(s state) {
	for _, sub := range subscriptions {
		byAggregate := map[string][]*event{}
		for _, e := range m.events {
			if m.ordered(sub, e) {
				byAggregate[e.aggregate()] = append(byAggregate[e.aggregate()], e)
			}
		}
		for _, aggregate := range slices.Sorted(maps.Keys(byAggregate)) {
			m.checkAggregate(s, sub, byAggregate[aggregate])
		}
	}
}

func (m *machine) checkAggregate(s state, sub persistence.Subscription, evts []*event) {
	for i, second := range evts {
		at, applied := s.at[effect{sub.Handler, second.ID}]
		if !applied {
			continue
		}
		for _, first := range evts[:i] {
			if first.position.Compare(second.position) > 0 && m.broken {
				continue // by a clock that was set back
			}
			if _, dead := s.letters[effect{sub.Handler, first.ID}]; dead {
				continue // a replay keeps no order
			}
			if before, ok := s.at[effect{sub.Handler, first.ID}]; ok && before > at || !s.settled(sub, first) {
				m.violated("handler %s was applied to event %s before %s of the same aggregate", sub.Handler, second.ID, first.ID)
			}
		}
	}
}

// checkLease: who does nothing holds no lease, unless it could not help it.
func (m *machine) checkLease(s state) {
	if m.OneWriter || !s.Lease.ExpiresTime.After(time.Now()) { // SQLite has a clock of its own
		return
	}
	for _, r := range m.replicas {
		if !r.busy && !r.crashed() && !r.keeps && r.owner != "" && s.Lease.Owner == r.owner {
			m.violated("%s does nothing, and holds the lease", r)
		}
	}
}
