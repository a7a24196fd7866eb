package crash

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/persistence"
)

// tally is what has become of the committed events.
type tally struct {
	committed int
	lost      int
	twice     int
	disorder  int
	phantom   int // delivered, though never committed
	replayed  int
	dead      []persistence.DeadLetter
}

// handlerOf is whose effects are in a table.
var handlerOf = map[string]string{"effects": handlerName, "batch_effects": "batch", "more_batch_effects": "more-batches"}

func (n tally) String() string {
	return fmt.Sprintf("events=%d lost=%d twice=%d disorder=%d phantom=%d replayed=%d dead=%d", n.committed, n.lost, n.twice, n.disorder, n.phantom, n.replayed, len(n.dead))
}

// clean asserts that every event has been applied once and in order, but for
// those that are to be dead letters.
func (n tally) clean(t *testing.T, dead ...string) {
	t.Helper()
	letters := []string{}
	for _, letter := range n.dead {
		letters = append(letters, letter.Record.ID)
	}
	require.ElementsMatch(t, dead, letters)
	require.Equal(t, tally{committed: n.committed, replayed: n.replayed, dead: n.dead}, n, "the promise is broken: %s", n)
}

// effect is what one delivery has left.
type effect struct {
	EventID            string
	Aggregate, Version int
}

// applied returns how many events have an effect in a table.
func (d *database) applied(table string) (n int, err error) {
	err = d.db.Raw("SELECT COUNT(DISTINCT event_id) FROM " + table).Scan(&n).Error
	return n, err
}

// count compares the outbox with a table of effects.
func (d *database) count(t *testing.T, table string) tally {
	t.Helper()
	var n tally
	var ids []string
	require.NoError(t, d.db.Raw("SELECT id FROM outbox").Scan(&ids).Error)
	// Each version of an aggregate is an event.
	var versions int
	require.NoError(t, d.db.Raw("SELECT SUM(version) FROM aggregates").Scan(&versions).Error)
	n.committed = len(ids)
	n.lost = versions - n.committed

	// A replay keeps no order.
	letters, err := d.ListDeadLetters(t.Context(), persistence.DeadLetterQuery{Limit: 100_000})
	require.NoError(t, err)
	passed, isDead := map[string]bool{}, map[string]bool{}
	for _, letter := range letters {
		if letter.Handler != handlerOf[table] {
			continue
		}
		passed[letter.Record.ID] = true
		if letter.State != persistence.DeadLetterReplayed {
			isDead[letter.Record.ID] = true
			n.dead = append(n.dead, letter)
		}
	}
	var effects []effect
	require.NoError(t, d.db.Raw("SELECT event_id, aggregate, version FROM "+table+" ORDER BY number").Scan(&effects).Error)
	applied, last := map[string]bool{}, map[int]int{}
	for _, e := range effects {
		if applied[e.EventID] {
			n.twice++
		}
		applied[e.EventID] = true
		if passed[e.EventID] {
			n.replayed++
			continue
		}
		next := last[e.Aggregate] + 1
		for passed[eventID(e.Aggregate, next)] {
			next++
		}
		if e.Version != next {
			n.disorder++
		}
		last[e.Aggregate] = e.Version
	}
	n.phantom = len(applied)
	for _, id := range ids {
		switch {
		case applied[id]:
			n.phantom--
		case !isDead[id]:
			n.lost++
		}
	}
	return n
}

// drain waits until as many events have an effect in a table as are committed,
// but for those that are to be dead letters.
func (d *database) drain(t *testing.T, table string, dead int) {
	t.Helper()
	var committed, applied int
	eventually(t, "all events are applied", func() (bool, error) {
		if err := d.db.Raw("SELECT COUNT(*) FROM outbox").Scan(&committed).Error; err != nil {
			return false, err
		}
		var err error
		applied, err = d.applied(table)
		if err == nil && applied < committed-dead {
			err = fmt.Errorf("%d of %d are", applied, committed)
		}
		return err == nil, err
	})
}
