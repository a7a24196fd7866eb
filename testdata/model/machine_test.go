package model

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// machine carries a sequence out, in a bubble.
type machine struct {
	backend
	*model
	t        rapid.TB
	ctx      context.Context
	replicas [3]*replica
	open     []*transaction

	mu         sync.Mutex
	violations []string
}

// run carries out a sequence, and checks the backend after each operation. In
// the end everything that stands still goes on, what failed is healed, and a new
// replica has to settle whatever is left.
func run(t rapid.TB, open func() backend, ops []operation, finish finish) {
	m := &machine{t: t, backend: open(), model: newModel(), ctx: context.Background()}
	defer m.stop()
	for i := range m.replicas {
		m.replicas[i] = m.deploy(fmt.Sprint(i), config{width: 1 + 3*(i%2)})
	}
	for i, op := range ops {
		m.log("%d. %#v", i+1, op)
		op.do(m)
		m.check()
	}
	m.log("the end")
	m.settle(finish)
}

// stop ends whatever runs, as a bubble requires.
func (m *machine) stop() {
	for _, r := range m.replicas {
		m.crash(r)
	}
	for len(m.open) > 0 {
		m.end(m.open[0], true)
	}
	m.meet()
	time.Sleep(time.Minute)
	synctest.Wait()
	if m.close != nil {
		m.close()
	}
}

func (m *machine) crash(r *replica) {
	if r.crashed() {
		return
	}
	r.crash()
	if r.cancel != nil {
		r.cancel()
	}
	synctest.Wait()
}

// cancel tells a replica to stop.
func (m *machine) cancel(r *replica) {
	r.stopping = true
	r.cancel()
	synctest.Wait()
}

func (m *machine) log(format string, args ...any) { m.t.Logf(format, args...) }

// violated notes that a promise was broken.
func (m *machine) violated(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.violations = append(m.violations, fmt.Sprintf(format, args...))
}

// sleep lets time pass, also for the database.
func (m *machine) sleep(d time.Duration) {
	m.meet()
	time.Sleep(d)
	if m.pass != nil {
		m.pass(d)
	}
	synctest.Wait()
}

// meet orders what was read here before what a timer makes a replica write.
func (m *machine) meet() {
	m.mu.Lock()
	defer m.mu.Unlock()
}

// advance lets a number of a replica's calls through, or, if it is 0, all until
// the pass ends, or until Poll has nothing to do. It stops where the replica
// waits for another one.
func (m *machine) advance(r *replica, calls, seed int) {
	var through []string
	defer func() { m.log("   %s: %s", r, strings.Join(through, ", ")) }()
	for n := 0; r.busy && (calls == 0 || n < calls); n++ {
		if !m.await(r, calls == 0 && r.polls && n > 0) {
			return
		}
		through = append(through, r.release(&seed, made))
		synctest.Wait()
		if n > 2000 {
			m.t.Fatalf("%s does not come to an end", r)
		}
	}
}

// await waits until a call of the replica stops. It is given a little time.
func (m *machine) await(r *replica, atOnce bool) bool {
	synctest.Wait()
	for _, pause := range []time.Duration{pollInterval, markPause} {
		if r.stopped() > 0 || !r.busy || atOnce {
			break
		}
		m.sleep(pause)
	}
	return r.stopped() > 0
}

// goOn lets everything go on until nothing runs.
func (m *machine) goOn() {
	for range 100 {
		busy := false
		for _, r := range m.replicas {
			if r.busy && r.polls {
				m.cancel(r)
			}
			m.advance(r, 0, 0)
			busy = busy || r.busy
		}
		if !busy {
			return
		}
		m.sleep(backOff)
	}
	m.t.Fatalf("a replica does not come to an end")
}
