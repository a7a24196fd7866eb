package events

import (
	"context"
	"fmt"
	"time"

	"github.com/onward-go/outbox/internal/usercode"
	"github.com/onward-go/outbox/persistence"
)

// keep renews the lease, well before it expires, until ctx ends or the lease is
// lost. While the database cannot be reached it tries again until the lease must
// have expired.
func (t *term) keep(ctx context.Context) {
	d := t.d
	every := d.lease / 3
	expires := t.began.Add(d.lease)
	for wait := every - time.Since(t.began); ; {
		if !sleep(ctx, t.ctx, wait) {
			return
		}
		asked := time.Now()
		lease, err := t.renew(ctx, every)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil && lease.Token == t.lease.Token && lease.Incarnation == t.lease.Incarnation:
			expires, wait = asked.Add(d.lease), every
		case err == nil && lease.Token == t.lease.Token:
			// The cursor may be behind what this term remembers. The lease is still
			// this dispatcher's, for the next term.
			t.lose(fmt.Errorf("dispatcher %q, token %d: %w: the server has been restarted or replaced", d.name, t.lease.Token, persistence.ErrLeaseLost))
			return
		case err == nil, usercode.Is(err, persistence.ErrLeaseHeld), usercode.Is(err, persistence.ErrNotFound):
			if err == nil { // it has taken a lease anew, under which nobody works
				_ = d.cursors.Release(ctx, lease)
			}
			t.lose(fmt.Errorf("dispatcher %q, token %d: %w: somebody else has taken it, or moved the cursor", d.name, t.lease.Token, persistence.ErrLeaseLost))
			return
		case time.Now().After(expires):
			t.lose(fmt.Errorf("dispatcher %q, token %d: %w: it could not be renewed for %s: %w", d.name, t.lease.Token, persistence.ErrLeaseLost, d.lease, usercode.Sound(err)))
			return
		default:
			wait = every / 4
		}
	}
}

func (t *term) renew(ctx context.Context, patience time.Duration) (persistence.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return t.d.cursors.Acquire(ctx, t.d.name, t.d.owner, t.d.lease)
}

// sleep waits, and reports false if a context has ended meanwhile.
func sleep(ctx, other context.Context, wait time.Duration) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
	case <-other.Done():
	}
	return false
}
