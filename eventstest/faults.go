package eventstest

import (
	"context"
	"fmt"
	"reflect"
	"sync"

	"github.com/onward-go/outbox/persistence"
)

// ErrLost is a fault that a dispatcher takes for what it takes a lost connection
// for: it spends no attempt of an event.
var ErrLost = fmt.Errorf("eventstest: %w: the connection is lost", persistence.ErrTransient)

// Faults decides what becomes of calls to the stores that its methods wrap. A
// call is named by its method, such as "Append"; a name that no store has is a
// panic. The zero value lets all calls pass. It is safe for concurrent use.
type Faults struct {
	mu      sync.Mutex
	planned map[string][]fault
	calls   map[string]int
}

// fault is what becomes of one call: it waits, then fails, or is done and its
// answer is lost.
type fault struct {
	held *Held
	err  error
	done bool
}

// Fail makes the next calls of the method fail, one with each error, and do
// nothing. A nil error lets a call pass, so that a later one fails.
func (f *Faults) Fail(method string, errs ...error) {
	for _, err := range errs {
		f.plan(method, fault{err: err})
	}
}

// Lose makes the next calls of the method return the errors though they are
// done, as when the connection is lost before the answer: with "Atomically" the
// transaction commits, and its caller cannot know. A nil error lets a call pass.
func (f *Faults) Lose(method string, errs ...error) {
	for _, err := range errs {
		f.plan(method, fault{err: err, done: true})
	}
}

// Block makes the next call of the method wait until it is released, or until
// its context ends, whose error it returns then.
func (f *Faults) Block(method string) *Held {
	h := &Held{reached: make(chan struct{}), released: make(chan struct{})}
	f.plan(method, fault{held: h})
	return h
}

// Calls returns how often the method was called, whatever became of it.
func (f *Faults) Calls(method string) int {
	mustExist(method)
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[method]
}

// Held is a call that [Faults.Block] holds back.
type Held struct {
	reached, released chan struct{}
	once              sync.Once
}

// Reached is closed when the call is there.
func (h *Held) Reached() <-chan struct{} { return h.reached }

// Release lets the call go on. To release it again does nothing.
func (h *Held) Release() { h.once.Do(func() { close(h.released) }) }

func (f *Faults) plan(method string, next fault) {
	mustExist(method)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.planned == nil {
		f.planned = map[string][]fault{}
	}
	f.planned[method] = append(f.planned[method], next)
}

// next counts a call and returns its fault.
func (f *Faults) next(method string) (next fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.calls == nil {
		f.calls = map[string]int{}
	}
	f.calls[method]++
	if planned := f.planned[method]; len(planned) > 0 {
		next, f.planned[method] = planned[0], planned[1:]
	}
	return next
}

// call makes one call, as it is planned.
func call[T any](ctx context.Context, f *Faults, method string, do func() (T, error)) (T, error) {
	var none T
	planned := f.next(method)
	if h := planned.held; h != nil {
		close(h.reached)
		select {
		case <-h.released:
		case <-ctx.Done():
			return none, context.Cause(ctx)
		}
	}
	if planned.err != nil && !planned.done {
		return none, planned.err
	}
	value, err := do()
	if err == nil && planned.err != nil {
		return none, planned.err
	}
	return value, err
}

// run is call for methods that return an error alone.
func run(ctx context.Context, f *Faults, method string, do func() error) error {
	_, err := call(ctx, f, method, func() (struct{}, error) { return struct{}{}, do() })
	return err
}

// mustExist panics for a typing error, which would be no fault at all.
func mustExist(method string) {
	for _, contract := range []reflect.Type{
		reflect.TypeFor[persistence.Transactor](), reflect.TypeFor[persistence.OutboxStore](), reflect.TypeFor[persistence.OutboxCursorStore](),
		reflect.TypeFor[persistence.CursorAdmin](), reflect.TypeFor[persistence.IdempotencyStore](), reflect.TypeFor[persistence.DedupStore](),
		reflect.TypeFor[persistence.OutboxRetention](),
	} {
		if _, found := contract.MethodByName(method); found {
			return
		}
	}
	panic(fmt.Sprintf("eventstest: no store has a method %q", method))
}
