package model

// deploy replaces a replica that does nothing, or has crashed.
type deploy struct {
	replica int
	config  config
}

func (o deploy) do(m *machine) {
	if r := m.replicas[o.replica]; !r.busy || r.crashed() {
		m.replicas[o.replica] = m.deploy(r.name, o.config)
	}
}

// pass has a replica begin a pass, and lets some of its calls through; if it is
// 0, all.
type pass struct{ replica, limit, calls, seed int }

func (o pass) do(m *machine) {
	r := m.ready(o.replica)
	if r.busy {
		return
	}
	r.pass(o.limit)
	m.advance(r, o.calls, o.seed)
}

// poll has a replica begin to poll.
type poll struct{ replica, batch, calls, seed int }

func (o poll) do(m *machine) {
	r := m.ready(o.replica)
	if r.busy {
		return
	}
	r.poll(o.batch)
	m.advance(r, o.calls, o.seed)
}

// ready returns a replica, deployed anew if it has crashed.
func (m *machine) ready(i int) *replica {
	if r := m.replicas[i]; r.crashed() {
		m.replicas[i] = m.deploy(r.name, r.config)
	}
	return m.replicas[i]
}

// advance lets more of a replica's calls through; if it is 0, all.
type advance struct{ replica, calls, seed int }

func (o advance) do(m *machine) {
	m.advance(m.replicas[o.replica], o.calls, o.seed)
}

// cancel stops a pass, or Poll, as a deploy does.
type cancel struct{ replica, calls, seed int }

func (o cancel) do(m *machine) {
	r := m.replicas[o.replica]
	if !r.busy || r.crashed() {
		return
	}
	m.interrupted++
	r.cancel()
	m.advance(r, o.calls, o.seed)
}

// crash kills a replica. It releases nothing.
type crash struct{ replica int }

func (o crash) do(m *machine) {
	r := m.replicas[o.replica]
	if !r.busy || r.crashed() {
		return
	}
	m.interrupted++
	m.crash(r)
}

// fault lets some calls through, if it is 0, none, and has the next one fail, or
// be made and its answer lost.
type fault struct {
	replica, calls, seed int
	unheard              bool
}

func (o fault) do(m *machine) {
	r := m.replicas[o.replica]
	if o.calls > 0 {
		m.advance(r, o.calls, o.seed)
	}
	if !r.busy || r.crashed() || !m.await(r, false) {
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
	p := m.poison[it]
	m.poison[it] = &poison{kind: o.kind, times: o.times, ever: p != nil && p.ever}
}
