package main

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// gate lets a contender handle events while it is its turn. Whoever has entered
// leaves before the turn ends, so that no transaction of a handler runs, or stands
// still with its locks, in the other side's turn.
type gate struct {
	turn    sync.RWMutex // held for writing while it is another's turn
	shut    bool
	handled atomic.Int64
}

var errShut = errors.New("the comparison is over")

func newGate() *gate {
	g := &gate{}
	g.turn.Lock()
	return g
}

// enter waits for the contender's turn. Nobody enters any more after the last one.
func (g *gate) enter() error {
	g.turn.RLock()
	if g.shut {
		g.turn.RUnlock()
		return errShut
	}
	return nil
}

// tryEnter enters if nobody has to wait for it.
func (g *gate) tryEnter() bool {
	if !g.turn.TryRLock() {
		return false
	}
	if g.shut {
		g.turn.RUnlock()
		return false
	}
	return true
}

func (g *gate) leave() { g.turn.RUnlock() }

// within runs a handler's transaction in the contender's turn.
func (g *gate) within(transaction func() error) error {
	if err := g.enter(); err != nil {
		return err
	}
	defer g.leave()
	return transaction()
}

// close turns away whoever waits. It is not the contender's turn.
func (g *gate) close() {
	g.shut = true
	g.turn.Unlock()
}

// work lets the handlers go on for a while, and returns how many events they have
// handled.
func (g *gate) work(ctx context.Context, turn time.Duration) int64 {
	before := g.handled.Load()
	g.turn.Unlock()
	select {
	case <-time.After(turn):
	case <-ctx.Done():
	}
	g.turn.Lock()
	return g.handled.Load() - before
}

// count adds events that a handler has handled, unless it failed.
func (g *gate) count(n int, err error) error {
	if err == nil {
		g.handled.Add(int64(n))
	}
	return err
}
