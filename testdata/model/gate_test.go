package model

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
)

var (
	// errCrashed is what a replica that has crashed sees of its database.
	errCrashed = errors.New("the replica has crashed")
	// errFault is what one that lives sees of a call that failed, or whose answer
	// was lost.
	errFault = errors.New("the connection is lost")
)

// gate stops every call of a replica until it is let through, or the replica
// crashes.
type gate struct {
	dead chan struct{}
	once sync.Once

	mu      sync.Mutex
	waiting []*call
}

type call struct {
	point string
	pass  chan fate
}

// fate is what becomes of a call.
type fate int

const (
	made     fate = iota
	unmade        // it fails
	unheard       // it is made, and its answer is lost
	orphaned      // the replica has crashed
)

func newGate() *gate { return &gate{dead: make(chan struct{})} }

// enter waits to be let through, under a name that says what comes next.
func (g *gate) enter(point string) fate {
	if g.crashed() {
		return orphaned
	}
	c := &call{point, make(chan fate, 1)}
	g.mu.Lock()
	g.waiting = append(g.waiting, c)
	g.mu.Unlock()
	select {
	case f := <-c.pass:
		return f
	case <-g.dead:
		return orphaned
	}
}

// through makes a call when the gate lets it through.
func through[T any](g *gate, point string, do func() (T, error)) (result T, err error) {
	switch g.enter(point) {
	case orphaned:
		return result, errCrashed
	case unmade:
		return result, errFault
	case unheard:
		if result, err = do(); err == nil {
			err = errFault
		}
		return result, err
	default:
		return do()
	}
}

// nothing makes a function for through of one that returns an error only.
func nothing(do func() error) func() (struct{}, error) {
	return func() (struct{}, error) { return struct{}{}, do() }
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
func (g *gate) release(seed *int, f fate) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	slices.SortStableFunc(g.waiting, func(a, b *call) int { return strings.Compare(a.point, b.point) })
	i := *seed % len(g.waiting)
	*seed /= len(g.waiting)
	c := g.waiting[i]
	g.waiting = slices.Delete(g.waiting, i, i+1)
	c.pass <- f
	return c.point
}

// crash ends every call that waits, and all that follow.
func (g *gate) crash() { g.once.Do(func() { close(g.dead) }) }

// alive returns a context that ends with the crash.
func (g *gate) alive(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-g.dead:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

func (g *gate) crashed() bool {
	select {
	case <-g.dead:
		return true
	default:
		return false
	}
}
