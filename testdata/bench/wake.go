package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/testdata/servers"
)

// wakes is how often a dispatcher is woken that has nothing to do.
const wakes = 300

// measureWake prints the time from a commit to the entry of the handler, in one
// process, while nothing else happens.
func measureWake(ctx context.Context, f family, server *servers.Server, _ settings) error {
	b, err := open(ctx, f, server.DSN, events.DefaultConcurrency)
	if err != nil {
		return err
	}
	defer b.close()
	delays, err := b.wake(ctx)
	if err != nil {
		return err
	}
	slices.Sort(delays)
	fmt.Printf("bench wake gormtx %s c=1 p50=%s p99=%s\n", server.Name, delays[len(delays)/2].Round(10*time.Microsecond), p99(delays).Round(10*time.Microsecond))
	return nil
}

func (b *benchmark) wake(ctx context.Context) (delays []time.Duration, err error) {
	d := events.NewDispatcher(b.outbox, b.outbox, b.outbox, b.outbox)
	entered := make(chan time.Time, 1)
	if err := d.Subscribe(event.Type, "wake", func(context.Context, events.Event) error {
		entered <- time.Now()
		return nil
	}); err != nil {
		return nil, err
	}
	if _, err := d.RunOnce(ctx, 1); err != nil {
		return nil, err
	}
	polling, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- d.Poll(polling, time.Second, 100, nil) }()
	defer func() {
		cancel()
		err = errors.Join(err, <-done)
	}()
	publisher := events.NewPublisher(b.outbox, events.WithNotify(d.Wake))
	for range wakes {
		var committed time.Time
		err := b.outbox.Atomically(ctx, func(ctx context.Context) error { return publisher.Publish(ctx, event) })
		if err != nil {
			return nil, err
		}
		committed = time.Now()
		select {
		case at := <-entered:
			delays = append(delays, max(0, at.Sub(committed)))
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		time.Sleep(20 * time.Millisecond) // the dispatcher comes to rest
	}
	return delays, nil
}
