package crash

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The event becomes a dead letter after as many attempts as it has, and none of
// those whose handlers ran beside it does.
func TestAnEventThatKillsItsProcess(t *testing.T) {
	on(t, func(t *testing.T, kind string) {
		const deadly, attempts = "2-2", 2
		dsn := newDSN(t, kind)
		d := create(t, kind, dsn, 8)
		for range 3 {
			d.commit(t, 0, 1, 2, 3, 4, 5, 6, 7)
		}
		// Long enough for a busy machine: a lease that is lost costs a try.
		r := replica{
			Kind: kind, DSN: dsn, Lease: 5 * time.Second, MaxAttempts: attempts,
			Linger: 30 * time.Millisecond, Exit: deadly,
		}
		exits := 0
		p := start(t, r)
		eventually(t, "all events are settled", func() (bool, error) {
			select {
			case <-p.done:
				require.Equal(t, exitCode, p.cmd.ProcessState.ExitCode())
				// The first one does not know that it would not outlive the handler.
				exits++
				require.LessOrEqual(t, exits, 1+attempts)
				p = start(t, r)
			default:
			}
			applied, err := d.applied("effects")
			return applied >= 3*8-1, err
		})
		require.NotZero(t, exits)
		n := d.count(t, "effects")
		n.clean(t, deadly)
		require.Equal(t, attempts, n.dead[0].Attempts)
		require.Contains(t, n.dead[0].LastError, "the process ended")
	}, "postgres", "mysql", "mariadb", "sqlite")
}
