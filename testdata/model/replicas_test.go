package model

import "time"

// Operations name a replica by its place among those that are idle, or that are
// at work, so that there is one whenever it makes sense.

// idle returns a replica that does nothing, deployed anew if it has crashed; or
// nil.
func (m *machine) idle(i int) *replica {
	var found []*replica
	for i, r := range m.replicas {
		if r.crashed() {
			r = m.deploy(r.name, r.config)
			m.replicas[i] = r
		}
		if !r.busy {
			found = append(found, r)
		}
	}
	return at(found, i)
}

// atWork returns a replica that is at work, or nil.
func (m *machine) atWork(i int) *replica {
	var found []*replica
	for _, r := range m.replicas {
		if r.busy && !r.crashed() {
			found = append(found, r)
		}
	}
	return at(found, i)
}

func at(replicas []*replica, i int) *replica {
	if len(replicas) == 0 {
		return nil
	}
	return replicas[i%len(replicas)]
}

// deploy replaces a replica that does nothing.
type deploy struct {
	idle   int
	config config
}

func (o deploy) do(m *machine) {
	old := m.idle(o.idle)
	for i, r := range m.replicas {
		if r == old {
			m.replicas[i] = m.deploy(r.name, o.config)
		}
	}
}

// pass has a replica begin a pass, and lets some of its calls through; if it is
// 0, all.
type pass struct{ idle, limit, calls, seed int }

func (o pass) do(m *machine) {
	if r := m.idle(o.idle); r != nil {
		r.pass(o.limit)
		m.advance(r, o.calls, o.seed)
	}
}

// takeOver waits until whoever stands still has lost its lease, and makes a
// pass.
type takeOver struct{ pass pass }

func (o takeOver) do(m *machine) {
	pause{lease + time.Second}.do(m)
	o.pass.do(m)
}

// poll has a replica begin to poll.
type poll struct{ idle, batch, calls, seed int }

func (o poll) do(m *machine) {
	if r := m.idle(o.idle); r != nil {
		r.poll(o.batch)
		m.advance(r, o.calls, o.seed)
	}
}

// advance lets more of a replica's calls through; if it is 0, all.
type advance struct{ atWork, calls, seed int }

func (o advance) do(m *machine) {
	if r := m.atWork(o.atWork); r != nil {
		m.advance(r, o.calls, o.seed)
	}
}

// cancel stops a pass, or Poll, as a deploy does.
type cancel struct{ atWork, calls, seed int }

func (o cancel) do(m *machine) {
	if r := m.atWork(o.atWork); r != nil {
		m.interrupted++
		m.cancel(r)
		m.advance(r, o.calls, o.seed)
	}
}

// crash kills a replica. It releases nothing.
type crash struct{ atWork int }

func (o crash) do(m *machine) {
	if r := m.atWork(o.atWork); r != nil {
		m.interrupted++
		m.crash(r)
	}
}

// fault has a replica's next call fail, or be made and its answer lost.
type fault struct {
	atWork, seed int
	unheard      bool
}

func (o fault) do(m *machine) {
	r := m.atWork(o.atWork)
	if r == nil || !m.await(r, false) {
		return
	}
	m.interrupted++
	m.faults++
	fate := unmade
	if o.unheard {
		fate = unheard
	}
	m.log("   %s: %s fails", r, r.release(&o.seed, fate))
}
