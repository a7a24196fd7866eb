package crash

import (
	"context"
	"flag"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	kills    = flag.Int("kills", 16, "dispatchers that TestDispatchersThatAreKilled kills, on each kind of server")
	restarts = flag.Int("restarts", 1, "servers that it kills, and starts again")
)

// Three replicas of a dispatcher are killed again and again, one at a time, and
// the server with its sessions now and then.
func TestDispatchersThatAreKilled(t *testing.T) {
	on(t, func(t *testing.T, kind string) {
		k := newKiller(t, kind, replica{Sick: true})
		k.killAll(*kills, *restarts)
		require.Zero(t, k.takenBack)
	}, "postgres", "mysql", "mariadb", "sqlite")
}

// The server is killed, again and again, until it has lost transactions of
// handlers that were committed and not on disk. No producer is at work meanwhile:
// its commits would bring them there.
func TestAServerThatLosesAsynchronousCommits(t *testing.T) {
	on(t, func(t *testing.T, kind string) {
		k := newKiller(t, kind, replica{Asynchronous: true})
		for round := 0; k.takenBack == 0 || round < *restarts; round++ {
			require.Less(t, round, 50, "nothing was ever lost")
			require.NoError(t, k.Atomically(t.Context(), func(ctx context.Context) error {
				for n := range 1000 {
					if _, err := k.change(ctx, n%aggregates); err != nil {
						return err
					}
				}
				return nil
			}))
			k.progress(100)
			k.restart()
		}
		t.Logf("crash server=%s restarts=%d taken-back=%d", kind, k.restarts, k.takenBack)
		k.requireClean()
	}, "postgres")
}

// killAll kills replicas and servers while producers are at work, and counts what
// has become of the events.
func (k *killer) killAll(kills, restarts int) {
	t := k.t
	t.Helper()
	producers := k.produce(t, 4, aggregates)
	operator := k.operate(t)
	k.run(kills, restarts)
	producers.end()
	t.Logf("crash server=%s kills=%d of-holders=%d pauses=%d restarts=%d rolled-back=%d failed=%d", k.replica.Kind,
		k.kills, k.ofHolders, k.pauses, k.restarts, producers.rolledBack.Load(), producers.failed.Load())
	k.requireClean()
	require.NotZero(t, operator.requeued.Load())
	producers.kept(t, k.database)
	require.NotZero(t, k.ofHolders, "nobody was at work when it was killed")
	require.NotZero(t, producers.rolledBack.Load())
}

// requireClean waits until all events are delivered, and asserts that each was
// applied once and in order, by each handler.
func (k *killer) requireClean() {
	k.t.Helper()
	for _, table := range []string{"effects", "batch_effects", "more_batch_effects"} {
		k.drain(k.t, table, 0)
		n := k.count(k.t, table)
		k.t.Logf("crash server=%s %s: %s", k.replica.Kind, table, n)
		n.clean(k.t)
	}
}
