package events

import (
	"context"
	"math"
	"sync"
	"time"
)

// timeouts hands out contexts that end when a handler's time is up. Those that begin
// at about the same time share a timer: one for each costs a busy dispatcher more than
// all else that it does for an event.
type timeouts struct {
	parent context.Context
	after  time.Duration

	mu     sync.Mutex
	shared context.Context
	until  time.Time          // when shared ends
	cancel context.CancelFunc // of shared, which ends by itself: nobody calls it
}

// lateness is by how much later than its time a handler may be cancelled.
func (t *timeouts) lateness() time.Duration {
	return min(t.after/64, math.MaxInt64-t.after)
}

// next returns the context of a handler that begins now.
func (t *timeouts) next() (context.Context, context.CancelFunc) {
	t.mu.Lock()
	if now := time.Now(); t.until.Sub(now) < t.after {
		t.until = now.Add(t.after + t.lateness())
		t.shared, t.cancel = context.WithDeadlineCause(t.parent, t.until, errHandlerTimeout)
	}
	shared := t.shared
	t.mu.Unlock()
	return context.WithCancel(shared)
}
