package events

import (
	"math/rand/v2"
	"time"
)

// Defaults of [WithBackoff].
const (
	DefaultFirstBackoff = 2 * time.Second
	DefaultMaxBackoff   = 5 * time.Minute
)

// backoff is an exponential one.
type backoff struct{ first, most time.Duration }

// after returns how long to wait after the n-th failure: it doubles each time,
// and a part of it is random, so that what failed together is not tried again
// together.
func (b backoff) after(n int) time.Duration {
	wait := b.first
	for range n - 1 {
		if wait > b.most/2 {
			wait = b.most
			break
		}
		wait *= 2
	}
	return wait/2 + rand.N(wait/2+1)
}
