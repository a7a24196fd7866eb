package crash

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/testdata/servers"
)

// killer kills and pauses replicas, and starts new ones in the place of the dead.
type killer struct {
	*database
	t        *testing.T
	server   *servers.Server // nil where it is embedded
	replica  replica
	replicas []*process
	handling chan *process // is in the middle of a handler

	kills, ofHolders, pauses, restarts int
	takenBack                          int // effects that were seen before the server was killed, and not after
}

// aggregates is how many producers change.
const aggregates = 20

func newKiller(t *testing.T, name string, r replica) *killer {
	t.Helper()
	k := &killer{t: t, handling: make(chan *process, 1)}
	var dsn string
	if kind := kinds[name].server; kind != nil {
		k.server = servers.Private(t, kind)
		dsn = servers.CreateDatabase(t, k.server)
	} else {
		dsn = newDSN(t, name)
	}
	k.database = create(t, name, dsn, aggregates)
	r.Kind, r.DSN, r.Lease, r.Linger, r.Batch = name, dsn, 600*time.Millisecond, 20*time.Millisecond, true
	k.replica = r
	for range 3 {
		k.replicas = append(k.replicas, k.start())
	}
	return k
}

func (k *killer) start() *process {
	return start(k.t, k.replica, func(p *process, m message) {
		if m.Word != "handling" {
			return
		}
		select {
		case k.handling <- p:
		default:
		}
	})
}

// run does everything that there is to do, in a random order.
func (k *killer) run(kills, restarts int) {
	k.t.Helper()
	var deeds []func()
	for i := range kills {
		deeds = append(deeds, []func(){k.killAny, k.killInHandler, k.killHolder, k.killAny}[i%4])
		// A transaction that stands still locks the whole of an embedded database.
		if i%8 == 0 && k.server != nil {
			deeds = append(deeds, k.pauseHolder)
		}
	}
	for range restarts {
		if k.server != nil {
			deeds = append(deeds, k.restart)
		}
	}
	rand.Shuffle(len(deeds), func(i, j int) { deeds[i], deeds[j] = deeds[j], deeds[i] })
	for _, deed := range deeds {
		k.progress(rand.IntN(30))
		deed()
	}
}

// progress waits until so many more events have been applied.
func (k *killer) progress(events int) {
	k.t.Helper()
	before := -1
	eventually(k.t, "deliveries go on", func() (bool, error) {
		n, err := k.applied("effects")
		if err == nil && before < 0 {
			before = n
		}
		return n >= before+events, err
	})
}

func (k *killer) killAny() { k.kill(k.replicas[rand.IntN(len(k.replicas))]) }

// killHolder kills the one that works.
func (k *killer) killHolder() {
	k.t.Helper()
	k.kill(k.atWork())
}

// killInHandler kills a process between an effect and its commit.
func (k *killer) killInHandler() {
	k.t.Helper()
	select {
	case <-k.handling: // it may have been a while ago
	default:
	}
	select {
	case p := <-k.handling:
		k.kill(p)
	case <-time.After(patience):
		require.Fail(k.t, "no handler ran within "+patience.String())
	}
}

// kill kills a process, and starts another one.
func (k *killer) kill(p *process) {
	holder, err := k.holder()
	p.kill()
	k.kills++
	if err == nil && holder == p.cmd.Process.Pid {
		k.ofHolders++
	}
	for i, r := range k.replicas {
		if r == p {
			k.replicas[i] = k.start()
		}
	}
}

// atWork waits until one of the replicas holds the lease, and returns it.
func (k *killer) atWork() (p *process) {
	k.t.Helper()
	eventually(k.t, "a replica holds the lease", func() (bool, error) {
		pid, err := k.holder()
		for _, r := range k.replicas {
			if r.cmd.Process.Pid == pid {
				p = r
			}
		}
		return p != nil, err
	})
	return p
}

// pauseHolder stops the one that works until another one has taken over; then
// both are at work.
func (k *killer) pauseHolder() {
	k.t.Helper()
	p := k.atWork()
	k.stop(k.t, p)
	eventually(k.t, "another replica takes over", func() (bool, error) {
		pid, err := k.holder()
		if pid != 0 && pid != p.cmd.Process.Pid || err != nil {
			return err == nil, err
		}
		if k.isLocked() { // by what was under way when it was stopped
			p.resume()
			p.pause()
		}
		return false, nil
	})
	p.resume()
	k.pauses++
}

// restart kills the server, and a replica while it is down.
func (k *killer) restart() {
	k.t.Helper()
	seen := make(chan int)
	go func() {
		most := 0
		for n, err := k.applied("effects"); err == nil; n, err = k.applied("effects") {
			most = n
		}
		seen <- most
	}()
	require.NoError(k.t, k.server.Kill(k.t.Context()))
	before := <-seen
	k.killAny()
	require.NoError(k.t, k.server.Restart(k.t.Context()))
	k.restarts++
	after, err := k.applied("effects")
	require.NoError(k.t, err)
	k.takenBack += max(0, before-after)
}
