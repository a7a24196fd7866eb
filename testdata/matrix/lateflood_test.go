package matrix

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"runtime/metrics"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/gormtx"
)

// One producer commits more at once than a page, an argument or a window takes,
// behind what has been read.
func TestManyLateEventsAreDeliveredInPages(t *testing.T) {
	const late, size, mostHeap = 4_000, 20_000, 48 << 20
	for _, s := range Servers {
		if s.Kind == nil || s.Again {
			continue
		}
		t.Run(s.Name, func(t *testing.T) {
			db := Open(t, s.Gorm(t), &gorm.Config{Logger: logger.Discard})
			outbox := gormtx.New(db)
			require.NoError(t, outbox.Migrate(t.Context()))
			publisher := events.NewPublisher(outbox)
			payload := []byte(strings.Repeat("x", size))
			of := func(kind string, n int) events.Event {
				return events.Event{Type: kind, AggregateType: kind, AggregateID: fmt.Sprint(n % 50), Payload: payload}
			}
			var applied, greatest atomic.Int64
			seen := make(chan struct{}, 1)
			d := events.NewDispatcher(outbox, outbox, outbox, outbox, events.WithWindow(1000, 1<<20),
				events.WithObserver(events.Observer{Read: func(i events.ReadInfo) { greatest.Store(max(greatest.Load(), int64(i.Window))) }}))
			require.NoError(t, d.Subscribe("early", "h", func(context.Context, events.Event) error { seen <- struct{}{}; return nil }))
			done := make(chan struct{})
			var bytes atomic.Int64
			var heap atomic.Uint64 // what was in use, the last time that the collector looked
			require.NoError(t, d.SubscribeBatch("late", "h", func(_ context.Context, evts []events.Event) error {
				for _, evt := range evts {
					bytes.Add(int64(len(evt.Payload)))
				}
				live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
				metrics.Read(live)
				for was := heap.Load(); live[0].Value.Uint64() > was && !heap.CompareAndSwap(was, live[0].Value.Uint64()); was = heap.Load() {
				}
				if applied.Add(int64(len(evts))) == late {
					close(done)
				}
				return nil
			}))
			ctx, cancel := context.WithCancel(t.Context())
			stopped := make(chan error, 1)
			go func() {
				stopped <- d.Poll(ctx, 10*time.Millisecond, 100, func(err error) {
					if !errors.Is(err, context.Canceled) {
						t.Error(err)
					}
				})
			}()
			before := debug.SetMemoryLimit(mostHeap)
			defer debug.SetMemoryLimit(before)
			require.NoError(t, outbox.Atomically(ctx, func(ctx context.Context) error {
				for n := 0; n < late; n += 100 {
					var evts []events.Event
					for i := range 100 {
						evts = append(evts, of("late", n+i))
					}
					if err := publisher.Publish(ctx, evts...); err != nil {
						return err
					}
				}
				// Somebody else commits later stamps, which are read before this one ends.
				if err := outbox.Atomically(context.WithoutCancel(t.Context()), func(ctx context.Context) error { return publisher.Publish(ctx, of("early", 0)) }); err != nil {
					return err
				}
				<-seen
				return nil
			}))
			<-done
			cancel()
			require.NoError(t, <-stopped)
			require.Equal(t, int64(late*size), bytes.Load())
			require.LessOrEqual(t, greatest.Load(), int64(2*1000+20))
			require.Zero(t, d.Stats().LateEvents, "none is left to an audit")
			require.Less(t, heap.Load(), uint64(mostHeap), "of %d bytes of payload", late*size)
		})
	}
}
