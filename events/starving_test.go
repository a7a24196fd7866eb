package events_test

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/memstore"
)

// text is what several goroutines write.
type text struct {
	mu sync.Mutex
	b  strings.Builder
}

func (w *text) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.Write(p)
}

func (w *text) count(part string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Count(w.b.String(), part)
}

// Two services that share a name: whoever holds the lease lacks the other's handler.
func TestAHandlerThatTheHolderLacksIsToldOf(t *testing.T) {
	const lacks, leftBehind = "that the holder of the lease lacks", "left behind by the holder"
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		start := func(out *text, types ...string) *replica {
			d := events.NewDispatcher(store, store, store, store, events.WithLogger(slog.New(slog.NewTextHandler(out, nil))))
			for _, eventType := range types {
				require.NoError(t, d.Subscribe(eventType, "h-"+eventType, func(context.Context, events.Event) error { return nil }))
			}
			return poll(t, d, nil)
		}
		var order, mail text
		orders := start(&order, "order")
		elapse(time.Second)
		mails := start(&mail, "mail")
		elapse(time.Minute)
		lag := func() time.Duration {
			status, err := mails.Status(t.Context())
			require.NoError(t, err)
			return time.Duration(status.Lag)
		}
		require.Zero(t, lag(), "nothing waits")
		first := of("a", "1")
		first.Type = "order"
		second := of("a", "2")
		second.Type = "mail"
		publish(t, store, first, second)
		elapse(5 * time.Minute)
		require.Greater(t, lag(), 4*time.Minute)
		require.Equal(t, 1, mail.count(leftBehind), "once")
		require.Equal(t, 1, mail.count("h-mail"), "by name")
		require.Equal(t, 1, order.count(lacks))
		require.Equal(t, 1, order.count("h-mail"))
		orders.stop()
		elapse(time.Minute)
		require.Zero(t, lag())
		mails.stop()
	})
	synctest.Test(t, func(t *testing.T) { // replicas of one service
		store := memstore.New()
		var out text
		opt := events.WithLogger(slog.New(slog.NewTextHandler(&out, nil)))
		none := func(context.Context, events.Event) error { return nil }
		one, two := poll(t, newDispatcher(t, store, none, opt), nil), poll(t, newDispatcher(t, store, none, opt), nil)
		for range 10 {
			publish(t, store, event(events.NewID()))
			elapse(time.Minute)
		}
		one.stop()
		two.stop()
		require.Zero(t, out.count(lacks)+out.count(leftBehind))
	})
}
