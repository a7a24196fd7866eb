package crash

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/persistence"
)

// paused is a dispatcher that stands still in the middle of a handler, and
// another one that has taken over.
type paused struct {
	*database
	zombie, successor *process
}

// held is the event in whose handler it stands.
const held = "1-2"

// pause brings a replica to a halt between the marker of an event and its
// commit. Then there are more events, and another replica.
func pause(t *testing.T, kind string, handlerTimeout time.Duration) paused {
	t.Helper()
	dsn := newDSN(t, kind)
	r := replica{Kind: kind, DSN: dsn, Lease: time.Second, HandlerTimeout: handlerTimeout, Hold: held}
	p := paused{database: create(t, kind, dsn, 4)}
	p.commit(t, 1, 2, 3, 1, 1)
	p.zombie = start(t, r)
	p.zombie.hear("held", held)
	eventually(t, "no other handler runs", p.others(2))
	p.stop(t, p.zombie)
	p.zombie.tell(wordGoOn) // it commits when it wakes up, if it can
	p.commit(t, 1, 2, 3, 2, 3, 1)
	r.Hold = ""
	p.successor = start(t, r)
	return p
}

// others reports whether so many events of the other aggregates are applied.
func (p paused) others(events int) func() (bool, error) {
	return func() (bool, error) {
		var n int
		err := p.db.Raw("SELECT COUNT(*) FROM effects WHERE aggregate <> 1").Scan(&n).Error
		return n == events, err
	}
}

// versions returns the versions of the aggregate whose handler is paused, as far
// as they are applied.
func (p paused) versions(t *testing.T) (versions []int) {
	t.Helper()
	require.NoError(t, p.db.Raw("SELECT version FROM effects WHERE aggregate = 1 ORDER BY number").Scan(&versions).Error)
	return versions
}

// wake lets the zombie go on, and asserts that it can do no harm.
func (p paused) wake(t *testing.T) {
	t.Helper()
	holder, err := p.holder()
	require.NoError(t, err)
	require.Equal(t, p.successor.cmd.Process.Pid, holder)
	p.zombie.resume()
	p.zombie.hear("error", persistence.ErrLeaseLost.Error())
	p.zombie.tell(wordWrite)
	p.zombie.hear("written", "")
	require.Empty(t, p.zombie.said("harm"))

	p.commit(t, 1, 2, 3)
	p.drain(t, "effects", 0)
	p.count(t, "effects").clean(t)
}

// Another replica takes over; the events of the one aggregate wait for the
// zombie's transaction, and no others do.
func TestAPausedDispatcherChangesNothing(t *testing.T) {
	on(t, func(t *testing.T, kind string) {
		p := pause(t, kind, 0)
		eventually(t, "the other aggregates' events are applied", p.others(6))
		require.Equal(t, []int{1}, p.versions(t), "the paused handler's transaction is open")
		p.wake(t)
	}, "postgres", "mysql", "mariadb")
}

// PostgreSQL ends the transaction of a handler that stands idle past its timeout,
// so that its aggregate's events need not wait until the zombie wakes up, either.
func TestPostgresEndsTheTransactionOfAPausedDispatcher(t *testing.T) {
	on(t, func(t *testing.T, kind string) {
		p := pause(t, kind, time.Second)
		p.drain(t, "effects", 0)
		require.Equal(t, []int{1, 2, 3, 4, 5}, p.versions(t))
		p.wake(t)
	}, "postgres")
}
