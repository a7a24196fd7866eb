package main

import (
	"context"
	"errors"
	"fmt"
	"runtime/metrics"
	"strings"
	"sync/atomic"
	"time"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/testdata/servers"
)

// measureMemory prints the peak of the heap while a backlog of events of a
// kilobyte is delivered: of the second half, over that of the first.
func measureMemory(ctx context.Context, f family, server *servers.Server, s settings) error {
	b, err := open(ctx, f, server.DSN, events.DefaultConcurrency)
	if err != nil {
		return err
	}
	defer b.close()
	first, second, err := b.drain(ctx, s.backlog)
	if err != nil {
		return err
	}
	fmt.Printf("bench memory gormtx %s c=%d events=%d MiB=%.0f ratio=%.2f\n", server.Name, events.DefaultConcurrency, s.backlog,
		float64(max(first, second))/(1<<20), float64(second)/float64(first))
	return nil
}

// drain delivers a backlog, and returns the peaks of the heap.
func (b *benchmark) drain(ctx context.Context, backlog int) (first, second uint64, err error) {
	if err := b.fillBefore(ctx, time.Now().UTC(), backlog, strings.Repeat("x", 1024)); err != nil {
		return 0, 0, err
	}
	var handled atomic.Int64
	d := events.NewDispatcher(b.outbox, b.outbox, b.outbox, b.outbox)
	if err := d.SubscribeBatch(event.Type, "drain", func(_ context.Context, evts []events.Event) error {
		handled.Add(int64(len(evts)))
		return nil
	}); err != nil {
		return 0, 0, err
	}
	polling, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- d.Poll(polling, time.Second, 500, nil) }()
	defer func() {
		cancel()
		err = errors.Join(err, <-done)
	}()
	for handled.Load() < int64(backlog) {
		select {
		case <-ctx.Done():
			return 0, 0, ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
		if now := heap(); handled.Load() < int64(backlog)/2 {
			first = max(first, now)
		} else {
			second = max(second, now)
		}
	}
	return first, second, nil
}

// heap returns the bytes of objects on the heap, dead or alive.
func heap() uint64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
