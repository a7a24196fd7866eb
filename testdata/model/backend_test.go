package model

import (
	"context"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/onward-go/outbox/memstore"
	"github.com/onward-go/outbox/outboxtest"
)

// backend is an outbox in an empty database of its own, with a table for what
// handlers do.
type backend struct {
	outboxtest.Backend
	// apply notes, in the handler's transaction, that a handler was applied.
	apply func(ctx context.Context, e effect) error
	// applied returns what is committed of that, in order.
	applied func(ctx context.Context) []effect
	// pass is called when time has passed, for a database with another clock.
	// Nil where there is none.
	pass func(time.Duration)
	// step sets the clock that stamps rows. Nil where stamps rise whatever it
	// does.
	step func(time.Duration)
	// close gives up what the backend holds. It may be nil.
	close func()
}

// effect is what a handler does to an event.
type effect struct{ handler, event string }

// effects is a table of them, in the order in which they were made.
type effects struct {
	last  atomic.Int64
	table *memstore.Table[int64, effect]
}

func newEffects(store *memstore.Store) *effects {
	return &effects{table: memstore.NewTable[int64, effect](store)}
}

func (f *effects) apply(ctx context.Context, e effect) error {
	return f.table.Put(ctx, f.last.Add(1), e)
}

func (f *effects) applied(ctx context.Context) []effect {
	all := f.table.All(ctx)
	var ordered []effect
	for _, n := range slices.Sorted(maps.Keys(all)) {
		ordered = append(ordered, all[n])
	}
	return ordered
}

// openMemory returns the store in memory. It stamps at the commit.
func openMemory() backend {
	store := memstore.New()
	f := newEffects(store)
	return backend{apply: f.apply, applied: f.applied, Backend: outboxtest.Backend{
		Transactor:  store,
		Outbox:      store,
		Cursors:     store,
		Admin:       store,
		Idempotency: store,
		DeadLetters: store,
		Retention:   store,
	}}
}
