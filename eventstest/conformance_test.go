package eventstest_test

import (
	"context"
	"testing"

	"github.com/onward-go/outbox/eventstest"
	"github.com/onward-go/outbox/memstore"
	"github.com/onward-go/outbox/outboxtest"
	"github.com/onward-go/outbox/persistence"
)

// Without a fault, a wrapped store keeps every rule.
func TestConformance(t *testing.T) {
	outboxtest.Run(t, func(testing.TB) outboxtest.Backend {
		store := memstore.New()
		state := memstore.NewTable[string, string](store)
		var f eventstest.Faults
		outbox := f.Outbox(store)
		return outboxtest.Backend{
			Transactor: f.Transactor(store), Outbox: outbox, Cursors: f.Cursors(store), Admin: f.Admin(store),
			Idempotency: f.Idempotency(store), DeadLetters: f.DeadLetters(store), Retention: f.Retention(store),
			Dedup: outbox.(persistence.DedupStore),
			Put:   state.Put,
			Get: func(ctx context.Context, key string) (string, error) {
				value, _ := state.Get(ctx, key)
				return value, nil
			},
			Insert:         store.Insert,
			Delete:         store.Delete,
			EndTransaction: func(ctx context.Context) error { return store.Abort(ctx, memstore.ErrDeadlock) },
			FailCommit:     func(ctx context.Context) error { return store.FailCommit(ctx, eventstest.ErrLost) },
		}
	})
}
