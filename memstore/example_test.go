package memstore_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/onward-go/outbox/memstore"
)

// A repository in memory rolls back with the events.
func ExampleTable() {
	ctx := context.Background()
	store := memstore.New()
	users := memstore.NewTable[string, string](store)
	_ = store.Atomically(ctx, func(ctx context.Context) error {
		_ = users.Put(ctx, "user-1", "suspended")
		return errors.New("changed my mind")
	})
	_, exists := users.Get(ctx, "user-1")
	fmt.Println(exists)
	// Output: false
}
