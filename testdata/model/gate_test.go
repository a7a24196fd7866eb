package model

import (
	"errors"
	"slices"
	"strings"
	"sync"
)

// errCrashed is what a replica that has crashed sees of its database.
var errCrashed = errors.New("the replica has crashed")

// gate stops every call of a replica until it is let through, or the replica
// crashes.
type gate struct {
	dead chan struct{}

	mu      sync.Mutex
	waiting []*call
}

type call struct {
	point string
	pass  chan struct{}
}

func newGate() *gate { return &gate{dead: make(chan struct{})} }

// enter waits to be let through, under a name that says what comes next.
func (g *gate) enter(point string) error {
	if g.crashed() {
		return errCrashed
	}
	c := &call{point, make(chan struct{})}
	g.mu.Lock()
	g.waiting = append(g.waiting, c)
	g.mu.Unlock()
	select {
	case <-c.pass:
		return nil
	case <-g.dead:
		return errCrashed
	}
}

// stopped returns the number of calls that wait.
func (g *gate) stopped() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.waiting)
}

// release lets one call through, and returns its name. Which one, the seed says:
// it is spent, so that the next choice is another one. A seed of 0 always
// chooses the first by name.
func (g *gate) release(seed *int) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	slices.SortStableFunc(g.waiting, func(a, b *call) int { return strings.Compare(a.point, b.point) })
	i := *seed % len(g.waiting)
	*seed /= len(g.waiting)
	c := g.waiting[i]
	g.waiting = slices.Delete(g.waiting, i, i+1)
	close(c.pass)
	return c.point
}

// crash ends every call that waits, and all that follow.
func (g *gate) crash() { close(g.dead) }

func (g *gate) crashed() bool {
	select {
	case <-g.dead:
		return true
	default:
		return false
	}
}
