package events_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/memstore"
)

// What the engine costs beside its database.
func BenchmarkDispatch(b *testing.B) {
	for _, concurrency := range []int{1, 8} {
		b.Run(fmt.Sprintf("c=%d", concurrency), func(b *testing.B) {
			store := memstore.New()
			var handled atomic.Int64
			ctx, cancel := context.WithCancel(b.Context())
			defer cancel()
			d := events.NewDispatcher(store, store, store, store, events.WithConcurrency(concurrency))
			err := d.Subscribe("t", "h", func(context.Context, events.Event) error {
				if handled.Add(1) == int64(b.N) {
					cancel()
				}
				return nil
			})
			if err != nil {
				b.Fatal(err)
			}
			publisher := events.NewPublisher(store)
			for n := 0; n < b.N; n += 100 {
				err := store.Atomically(ctx, func(ctx context.Context) error {
					for i := n; i < min(n+100, b.N); i++ {
						evt := events.Event{Type: "t", AggregateType: "a", AggregateID: fmt.Sprint(i % 500)}
						if err := publisher.Publish(ctx, evt); err != nil {
							return err
						}
					}
					return nil
				})
				if err != nil {
					b.Fatal(err)
				}
			}
			b.ReportAllocs()
			b.ResetTimer()
			if err := d.Poll(ctx, time.Second, 500, nil); err != nil {
				b.Fatal(err)
			}
		})
	}
}
