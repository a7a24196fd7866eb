package model

import (
	"slices"
	"time"
)

// patience is how long those who poll have, by the clock of the bubble, to deliver
// whatever is visible once nothing fails any more: leases expire, and back-offs and
// faults have their end. To that comes the time until a clock that was set back has
// caught up, for which a window that is full waits.
const patience = time.Minute

// checkNothingIsIdle lets everybody go on, and nobody stop. Who polls, and holds the
// lease, delivers all there is for its handlers: a new replica would hide what an old
// one has forgotten.
func (m *machine) checkNothingIsIdle() {
	if !slices.ContainsFunc(m.replicas[:], (*replica).serves) {
		return
	}
	for waited := time.Duration(0); waited < patience+m.setBack; waited += backOff {
		for _, r := range m.replicas {
			m.advance(r, 0, 0)
		}
		m.check()
		if m.isDelivered() {
			return
		}
		m.sleep(backOff)
	}
	s := m.look()
	for _, r := range m.replicas {
		if !r.serves() || s.Lease.Owner != r.owner {
			continue
		}
		for _, e := range m.events {
			for _, sub := range subscriptions {
				if r.config.has(sub) && m.owed(sub, e) && !e.stray && !e.dropped && !s.settled(sub, e) {
					m.violated("%s polls, nothing fails, and event %s waits for handler %s for %s", r, e.ID, sub.Handler, patience)
				}
			}
		}
	}
	m.report()
}

// serves reports whether a replica polls, and nobody has told it to stop.
func (r *replica) serves() bool { return r.busy && r.polls && !r.stopping && !r.crashed() }

// isDelivered reports whether every handler has got what is for it.
func (m *machine) isDelivered() bool {
	s := m.look()
	for _, e := range m.events {
		for _, sub := range subscriptions {
			if m.owed(sub, e) && !e.stray && !e.dropped && !s.settled(sub, e) {
				return false
			}
		}
	}
	return true
}
