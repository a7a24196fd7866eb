package crash

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// producers change aggregates at random until they are stopped, whatever becomes
// of the server meanwhile.
type producers struct {
	stop context.CancelFunc
	done sync.WaitGroup

	mu           sync.Mutex
	acknowledged []string // events whose commit has returned without an error
	failed       atomic.Int64
	rolledBack   atomic.Int64
	backlog      atomic.Int64 // events that nobody has applied, a moment ago
}

// maxBacklog is how far producers run ahead of the dispatchers.
const maxBacklog = 100

var errRollback = errors.New("roll back")

func (d *database) produce(t *testing.T, n, aggregates int) *producers {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	p := &producers{stop: cancel}
	for range n {
		p.done.Go(func() {
			for ctx.Err() == nil {
				if p.backlog.Load() > maxBacklog {
					time.Sleep(5 * time.Millisecond)
					continue
				}
				p.transaction(ctx, d, aggregates)
			}
		})
	}
	p.done.Go(func() {
		for ctx.Err() == nil {
			var committed, applied int64
			err := errors.Join(d.db.Raw("SELECT COUNT(*) FROM outbox").Scan(&committed).Error,
				d.db.Raw("SELECT COUNT(*) FROM effects").Scan(&applied).Error)
			if err == nil {
				p.backlog.Store(committed - applied)
			}
			time.Sleep(20 * time.Millisecond)
		}
	})
	t.Cleanup(p.end)
	return p
}

func (p *producers) end() {
	p.stop()
	p.done.Wait()
}

// transaction makes up to three changes, and rolls some of them back. It is not
// cut off by the end, so that what it tells is the truth.
func (p *producers) transaction(ctx context.Context, d *database, aggregates int) {
	ctx = context.WithoutCancel(ctx)
	var ids []string
	err := d.Atomically(ctx, func(ctx context.Context) error {
		ids = nil
		for aggregate := rand.IntN(aggregates); aggregate < aggregates && len(ids) < 3; aggregate += 1 + rand.IntN(aggregates) {
			id, err := d.change(ctx, aggregate)
			if err != nil {
				return err
			}
			ids = append(ids, id)
		}
		if rand.IntN(10) == 0 {
			return errRollback
		}
		return nil
	})
	switch {
	case err == nil:
		p.mu.Lock()
		defer p.mu.Unlock()
		p.acknowledged = append(p.acknowledged, ids...)
	case errors.Is(err, errRollback):
		p.rolledBack.Add(1)
	default: // a deadlock, or the server is down
		p.failed.Add(1)
		time.Sleep(5 * time.Millisecond)
	}
}

// kept asserts that the outbox holds every event whose commit was acknowledged.
func (p *producers) kept(t *testing.T, d *database) {
	t.Helper()
	var ids []string
	require.NoError(t, d.db.Raw("SELECT id FROM outbox").Scan(&ids).Error)
	stored := make(map[string]bool, len(ids))
	for _, id := range ids {
		stored[id] = true
	}
	for _, id := range p.acknowledged {
		require.True(t, stored[id], "event %s, of %d", id, len(p.acknowledged))
	}
}
