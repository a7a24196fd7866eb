package memstore_test

import (
	"context"
	"errors"
	"testing"

	"github.com/onward-go/outbox/memstore"
	"github.com/onward-go/outbox/outboxtest"
)

func TestConformance(t *testing.T) {
	outboxtest.Run(t, func(testing.TB) outboxtest.Backend {
		store := memstore.New()
		state := memstore.NewTable[string, string](store)
		return outboxtest.Backend{
			Transactor:  store,
			Outbox:      store,
			Cursors:     store,
			Admin:       store,
			Idempotency: store,
			DeadLetters: store,
			Retention:   store,
			Dedup:       store,
			Inspector:   store,
			Status:      store,
			Validator:   store,
			Put:         state.Put,
			Get: func(ctx context.Context, key string) (string, error) {
				value, _ := state.Get(ctx, key)
				return value, nil
			},
			Insert:         store.Insert,
			Delete:         store.Delete,
			EndTransaction: func(ctx context.Context) error { return store.Abort(ctx, memstore.ErrDeadlock) },
			FailCommit:     func(ctx context.Context) error { return store.FailCommit(ctx, errors.New("disk full")) },
		}
	})
}
