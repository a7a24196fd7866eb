package matrix

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/gormtx"
)

// Whatever way transactions end, each delivery that has committed is told once, and
// one that rolls back at its commit never.
func TestAnObserverIsToldOfEachDeliveryOnce(t *testing.T) {
	const n, aggregates = 300, 40
	for _, server := range Servers {
		if server.Again {
			continue
		}
		t.Run(server.Name, func(t *testing.T) {
			t.Parallel()
			db := Open(t, server.Gorm(t), &gorm.Config{Logger: logger.Discard})
			outbox := gormtx.New(db)
			require.NoError(t, outbox.Migrate(t.Context()))
			require.NoError(t, outbox.Atomically(t.Context(), func(ctx context.Context) error {
				evts := make([]events.Event, n)
				for i := range evts {
					evts[i] = events.Event{ID: fmt.Sprint(i), Type: "t", AggregateType: "a", AggregateID: fmt.Sprint(i % aggregates)}
				}
				return events.NewPublisher(outbox).Publish(ctx, evts...)
			}))
			var mu sync.Mutex
			delivered, failed, tries := map[string]int{}, map[string]int{}, map[string]int{}
			done := make(chan struct{})
			d := events.NewDispatcher(outbox, outbox, outbox, outbox, events.WithBackoff(time.Millisecond, time.Millisecond),
				events.WithObserver(events.Observer{
					Delivered: func(i events.DeliveryInfo) {
						mu.Lock()
						defer mu.Unlock()
						delivered[i.EventID]++
						if i.Duration <= 0 || i.Lag <= 0 || i.Batch != 1 {
							t.Error(i)
						}
						if len(delivered) == n {
							close(done)
						}
					},
					Failed: func(i events.DeliveryInfo) {
						mu.Lock()
						defer mu.Unlock()
						failed[i.EventID]++
					},
				}))
			require.NoError(t, d.Subscribe("t", "h", func(_ context.Context, evt events.Event) error {
				mu.Lock()
				defer mu.Unlock()
				if tries[evt.ID]++; tries[evt.ID] == 1 && evt.AggregateID == "7" {
					return errors.New("at first")
				}
				return nil
			}))
			ctx, cancel := context.WithCancel(t.Context())
			polled := make(chan error, 1)
			go func() { polled <- d.Poll(ctx, 10*time.Millisecond, 100, nil) }()
			<-done
			cancel()
			require.NoError(t, <-polled)
			for id, times := range delivered {
				require.Equal(t, 1, times, id)
			}
			require.Len(t, failed, n/aggregates+1)
		})
	}
}
