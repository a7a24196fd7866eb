package main

import (
	"context"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"time"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/testdata/servers"
)

// measureWake prints the time from a commit to the entry of the handler, while
// nothing else happens.
func measureWake(ctx context.Context, f family, server *servers.Server, s settings) error {
	for _, c := range s.contenders {
		for _, w := range c.wakers {
			b, err := open(ctx, f, server.DSN, events.DefaultConcurrency)
			if err != nil {
				return err
			}
			delays, err := b.wake(ctx, w)
			b.close()
			if err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
			slices.Sort(delays)
			fmt.Printf("bench wake %s %s c=1 p50=%s p99=%s\n", w.name, server.Name, delays[len(delays)/2].Round(10*time.Microsecond), p99(delays).Round(10*time.Microsecond))
		}
	}
	return nil
}

func (b *benchmark) wake(ctx context.Context, w waker) (delays []time.Duration, err error) {
	entered := make(chan time.Time, 1)
	publish, stop, err := w.start(ctx, b, func() { entered <- time.Now() })
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	for sample := range w.samples + 1 {
		committed, err := publish(ctx)
		if err != nil {
			return nil, err
		}
		select {
		case at := <-entered:
			if sample > 0 { // the first warms up
				delays = append(delays, max(0, at.Sub(committed)))
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		time.Sleep(w.rest + mathrand.N(w.rest)) // it comes to rest
	}
	return delays, nil
}
