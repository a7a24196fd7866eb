package model

import (
	"errors"
	"time"

	"github.com/onward-go/outbox/persistence"
)

// rewind moves the cursor back to an event, or right before it; to the beginning
// where there are not so many events.
type rewind struct {
	event  int // from the latest back
	before bool
}

func (o rewind) do(m *machine) {
	to := m.cursor
	to.ID, to.CreatedTime = "", time.Time{}
	if o.event < len(m.events) {
		e := m.events[len(m.events)-1-o.event]
		if e.committed == 0 {
			return
		}
		to = e.position
		if o.before {
			to.ID, to.CreatedTime = "", to.CreatedTime.Add(-time.Microsecond)
		}
	}
	if to.Compare(m.cursor) >= 0 {
		return
	}
	if err := m.Admin.Rewind(m.ctx, dispatcherName, to); err != nil {
		m.t.Fatalf("rewind: %v", err)
	}
	m.interrupted++
	for _, r := range m.replicas {
		r.keeps = true
	}
	m.rewound(to)
}

// retain drops what is older than a time, which never takes what is owed.
//
// It waits until no former holder of the lease has events in its hands: with
// them their markers are dropped, so that it could apply them again.
type retain struct{ keep time.Duration }

func (o retain) do(m *machine) {
	s := m.look()
	for _, r := range m.replicas {
		if r.busy && !r.crashed() && r.token != 0 && r.token != s.Lease.Token {
			return
		}
	}
	if m.Retention == nil {
		return
	}
	now := time.Now()
	report, err := m.Retention.DropPartitionsBefore(m.ctx, now.Add(-o.keep), persistence.RetentionOptions{})
	if err != nil && !errors.Is(err, persistence.ErrOwed) {
		m.t.Fatalf("retention: %v", err)
	}
	m.log("   dropped: %v, %v", report.Dropped, err)
	stored := m.stored()
	for _, e := range m.events {
		if _, there := stored[e.ID]; there || e.committed == 0 || e.dropped {
			continue
		}
		e.dropped = true
		if e.CreatedTime.After(now.Add(-persistence.AuditWindow)) {
			m.violated("retention has dropped event %s, which is %s old", e.ID, now.Sub(e.CreatedTime))
		}
		for _, sub := range subscriptions {
			if m.owed(sub, e) && !e.excused && !s.settled(sub, e) {
				m.violated("retention has dropped event %s, which is owed to handler %s", e.ID, sub.Handler)
			}
		}
	}
}

// insert writes a row as somebody else would, stamped behind the safe mark.
type insert struct {
	behind time.Duration
	event  spec
}

func (o insert) do(m *machine) {
	stamp := m.mark.greatest().Add(-o.behind - time.Microsecond)
	if m.Insert == nil || m.locked([]spec{o.event}) || stamp.Year() < 1999 { // nobody has asked for the mark of a row
		return
	}
	e := m.make([]spec{o.event})[0]
	m.broken = true
	err := m.Insert(m.ctx, persistence.Record{
		ID: e.ID, AccountID: e.AccountID, AggregateType: e.AggregateType, AggregateID: e.AggregateID, EventType: e.Type,
		CreatedTime: stamp,
	})
	if err != nil {
		m.t.Fatalf("insert: %v", err)
	}
	m.committed([]*event{e}, true)
}

// step sets the database's clock.
type step struct{ by time.Duration }

func (o step) do(m *machine) {
	if m.backend.step == nil {
		return
	}
	if o.by < 0 {
		m.broken = true
		m.setBack -= o.by
	}
	m.backend.step(o.by)
}

// spoil makes an event, one of the latest, poison for a handler for some times.
type spoil struct {
	event   int // from the latest back
	handler string
	kind    string
	times   int
}

func (o spoil) do(m *machine) {
	if o.event >= len(m.events) {
		return
	}
	it := effect{o.handler, m.events[len(m.events)-1-o.event].ID}
	if m.poison[it] == nil {
		m.poison[it] = &poison{}
	}
	m.poison[it].kind, m.poison[it].times = o.kind, o.times
}
