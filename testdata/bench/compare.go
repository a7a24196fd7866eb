package main

import (
	"context"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// operation does some work and returns how many units it was.
type operation func(ctx context.Context) (int, error)

// turns is how often the two sides take turns.
const turns = 12

// compare returns the rate of one over the rate of other. They take turns in
// short turns, so that both see the same weather.
func compare(ctx context.Context, duration time.Duration, concurrency int, one, other operation) (float64, error) {
	var units [2]int64
	var spent [2]time.Duration
	for turn := range turns {
		side := turn % 2
		op := []operation{one, other}[side]
		start := time.Now()
		n, err := repeat(ctx, duration/turns, concurrency, op)
		if err != nil {
			return 0, err
		}
		if turn >= 2 { // the first of each warms up
			units[side] += n
			spent[side] += time.Since(start)
		}
	}
	rate := func(side int) float64 { return float64(units[side]) / spent[side].Seconds() }
	return rate(0) / rate(1), nil
}

func repeat(ctx context.Context, duration time.Duration, concurrency int, op operation) (int64, error) {
	var units atomic.Int64
	end := time.Now().Add(duration)
	group, ctx := errgroup.WithContext(ctx)
	for range concurrency {
		group.Go(func() error {
			for time.Now().Before(end) {
				n, err := op(ctx)
				if err != nil {
					return err
				}
				units.Add(int64(n))
			}
			return nil
		})
	}
	err := group.Wait()
	return units.Load(), err
}
