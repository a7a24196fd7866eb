package crash

import (
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
		const aggregates = 20
		k := newKiller(t, kind, aggregates)
		producers := k.produce(t, 4, aggregates)
		k.run(*kills, *restarts)
		producers.end()
		for _, table := range []string{"effects", "batch_effects"} {
			k.drain(t, table, 0)
			n := k.count(t, table)
			t.Logf("crash server=%s kills=%d of-holders=%d pauses=%d restarts=%d rolled-back=%d failed=%d %s: %s", kind,
				k.kills, k.ofHolders, k.pauses, k.restarts, producers.rolledBack.Load(), producers.failed.Load(), table, n)
			n.clean(t)
		}
		producers.kept(t, k.database)
		require.NotZero(t, k.ofHolders, "nobody was at work when it was killed")
		require.NotZero(t, producers.rolledBack.Load())
	}, "postgres", "mysql", "mariadb", "sqlite")
}
