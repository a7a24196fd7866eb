package persistence_test

import (
	"context"
	"fmt"

	"github.com/onward-go/outbox/memstore"
	"github.com/onward-go/outbox/persistence"
)

func ExampleAfterCommit() {
	store := memstore.New()
	_ = store.Atomically(context.Background(), func(ctx context.Context) error {
		_ = persistence.AfterCommit(ctx, func(context.Context) { fmt.Println("after the commit") })
		fmt.Println("in the transaction")
		return nil
	})
	// Output:
	// in the transaction
	// after the commit
}
