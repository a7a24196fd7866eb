package events

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/onward-go/outbox/persistence"
)

// spareConnections are those that the dispatcher itself needs: to read and save,
// and to renew the lease. If lanes had them all, the lease would expire while their
// handlers run.
const spareConnections = 2

// widthEvery is how often a dispatcher looks whether the pool has got another limit.
const widthEvery = time.Second

// width returns how many lanes run at once, and how many transactions can be open; 0
// is no limit.
func (d *Dispatcher) width() (lanes, limit int) {
	lanes = DefaultConcurrency
	if d.concurrency > 0 {
		lanes = d.concurrency
	}
	if limited, ok := d.tx.(persistence.TransactionLimit); ok {
		limit = limited.MaxTransactions()
	}
	if limit > 0 {
		lanes = min(lanes, max(1, limit-spareConnections))
	}
	return lanes, limit
}

// warnOfWidth logs that the pool is too small for what was asked for, or for a lane
// beside the dispatcher itself, unless it has said so of that pool. One connection may
// be all that a database with a single writer can make use of.
func (d *Dispatcher) warnOfWidth(ctx context.Context, lanes, limit int) {
	if limit == d.warnedOf || lanes >= d.concurrency && limit != spareConnections {
		return
	}
	d.warnedOf = limit
	wanted := cmp.Or(d.concurrency, DefaultConcurrency)
	d.log.LogAttrs(ctx, slog.LevelWarn, "outbox: pool is small", slog.String("dispatcher", d.name), slog.Int("connections", limit),
		slog.Int("lanes", lanes), slog.Int("concurrency", wanted), slog.Int("connections_wanted", wanted+spareConnections))
}

// fit warns of a pool that is small, and has more lanes run if it has grown.
func (t *term) fit(ctx context.Context) {
	if time.Since(t.fitted) < widthEvery {
		return
	}
	t.fitted = time.Now()
	lanes, limit := t.d.width()
	t.d.warnOfWidth(ctx, lanes, limit)
	t.lanes.mu.Lock()
	defer t.lanes.mu.Unlock()
	t.lanes.schedule()
}

// fit looks now and then how many may run. Lanes look themselves, since the dispatcher
// may be waiting for a connection that they have. The caller holds the mutex.
func (l *lanes) fit() {
	if now := time.Now(); now.Sub(l.fitted) >= widthEvery {
		l.fitted, l.width = now, l.widthNow()
	}
}

// batchesAhead returns how many events are to wait, for batches side by side to be
// full: no more than the window holds.
func (d *Dispatcher) batchesAhead(lanes int) int {
	if size := min(d.batchSize, d.windowEvents); lanes < d.windowEvents/size {
		return (lanes + 1) * size
	}
	return d.windowEvents
}
