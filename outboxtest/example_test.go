package outboxtest_test

import (
	"context"
	"testing"

	"github.com/onward-go/outbox/memstore"
	"github.com/onward-go/outbox/outboxtest"
)

// A store proves itself with the whole suite.
func ExampleRun() {
	_ = func(t *testing.T) { // func TestConformance(t *testing.T)
		outboxtest.Run(t, func(t testing.TB) outboxtest.Backend {
			store := memstore.New() // your store, empty
			state := memstore.NewTable[string, string](store)
			return outboxtest.Backend{
				Transactor: store, Outbox: store, Cursors: store, Admin: store, Idempotency: store, DeadLetters: store,
				Put: state.Put,
				Get: func(ctx context.Context, key string) (string, error) {
					value, _ := state.Get(ctx, key)
					return value, nil
				},
			}
		})
	}
	// Output:
}
