package usercode

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// mostCalls is how many calls may wait for those before them.
const mostCalls = 1024

// Calls makes calls one after the other, in the order in which they were asked for,
// on a goroutine of its own: whoever asks does not wait, whatever the function does.
// There is a goroutine only while there is something to call. It is safe for
// concurrent use.
//
// While mostCalls are waiting, whoever asks for another one waits, too, unless the
// call that runs has gone on for [Patience]: then the new one is dropped.
type Calls struct {
	what    string
	dropped *atomic.Int64
	failed  func(error)

	mu      sync.Mutex
	waiting []func()
	running bool
	began   time.Time     // the call that runs
	untold  int64         // calls that were dropped, which failed was not told of
	moved   chan struct{} // closed when a call has ended, if somebody waits for it
}

// NewCalls returns calls of what. Dropped counts those that are dropped. Failed,
// which may be nil, is told of a call that panics or ends its goroutine, and of calls
// that were dropped.
func NewCalls(what string, dropped *atomic.Int64, failed func(error)) *Calls {
	return &Calls{what: what, dropped: dropped, failed: failed}
}

func (c *Calls) name() string { return c.what }

// Add asks for a call.
func (c *Calls) Add(fn func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.waiting) >= mostCalls {
		if !c.await(Patience) {
			c.dropped.Add(1)
			c.untold++
			return
		}
	}
	c.waiting = append(c.waiting, fn)
	if !c.running {
		c.running = true
		go c.run()
	}
}

// Drain waits until all calls have been made, unless that takes too long, or the one
// that runs has gone on for [Patience].
func (c *Calls) Drain(limit time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for deadline := time.Now().Add(limit); c.running; {
		if !c.await(time.Until(deadline)) {
			return
		}
	}
}

// await waits for the end of the call that runs. It reports false if that has gone
// on for [Patience], or does not end within the limit. The caller holds the mutex.
func (c *Calls) await(limit time.Duration) bool {
	limit = min(limit, Patience)
	if !c.began.IsZero() {
		limit = min(limit, Patience-time.Since(c.began))
	}
	if limit <= 0 {
		return false
	}
	if c.moved == nil {
		c.moved = make(chan struct{})
	}
	moved := c.moved
	c.mu.Unlock()
	defer c.mu.Lock()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-moved:
		return true
	case <-timer.C:
		return false
	}
}

// run makes the calls. If one of them ends the goroutine, another goes on.
func (c *Calls) run() {
	exited := func(err error) {
		c.tell(err)
		go c.run()
	}
	for fn := c.next(); fn != nil; fn = c.next() {
		err := Run(c.name, func() error { fn(); return nil }, exited)
		c.tell(err)
	}
}

// next takes the next call, if there is one.
func (c *Calls) next() (fn func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.moved != nil {
		close(c.moved)
		c.moved = nil
	}
	c.began = time.Time{}
	if len(c.waiting) == 0 {
		c.waiting, c.running = nil, false
		return nil
	}
	fn = c.waiting[0]
	c.waiting[0] = nil
	c.waiting = c.waiting[1:]
	c.began = time.Now()
	return fn
}

// tell tells of a call that has ended badly, and of those that were dropped
// meanwhile.
func (c *Calls) tell(err error) {
	c.mu.Lock()
	dropped := c.untold
	c.untold = 0
	c.mu.Unlock()
	if c.failed == nil {
		return
	}
	if err != nil {
		c.failed(err)
	}
	if dropped > 0 {
		c.failed(fmt.Errorf("%s has not returned for %s: %d calls were dropped", c.what, Patience, dropped))
	}
}
