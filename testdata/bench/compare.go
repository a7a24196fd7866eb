package main

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// operation does some work and returns how many units it was.
type operation func(ctx context.Context) (int, error)

// side is an operation and how many of it run at once.
type side struct {
	operation   operation
	concurrency int
	prepare     func(ctx context.Context) error // before each turn, off the clock; or nil
}

// shortTurn is how long one side runs before it is the other's turn. Where a transaction
// takes a good part of one, they are longer: at the end of each, whoever is done first
// waits for the last.
const shortTurn, longTurn = 200 * time.Millisecond, 600 * time.Millisecond

// compare returns the rate of one over the rate of other. They take turns in
// short turns, so that both see the same weather; the median of the pairs' ratios
// leaves out those between which it changed. A longer duration is more turns.
func compare(ctx context.Context, duration, turn time.Duration, one, other side) (float64, error) {
	sides := []side{one, other}
	pairs := max(1, int(duration/(2*turn)))
	var ratios []float64
	for pair := range pairs + 1 {
		var rates [2]float64
		for i := range sides {
			side := (pair + i) % 2 // neither is always the first
			if prepare := sides[side].prepare; prepare != nil {
				if err := prepare(ctx); err != nil {
					return 0, err
				}
			}
			start := time.Now()
			n, err := repeat(ctx, turn, sides[side])
			if err != nil {
				return 0, err
			}
			rates[side] = float64(n) / time.Since(start).Seconds()
		}
		if pair > 0 { // the first warms up
			ratios = append(ratios, rates[0]/rates[1])
		}
	}
	slices.Sort(ratios)
	return (ratios[(pairs-1)/2] + ratios[pairs/2]) / 2, nil
}

func repeat(ctx context.Context, duration time.Duration, s side) (int64, error) {
	var units atomic.Int64
	end := time.Now().Add(duration)
	group, ctx := errgroup.WithContext(ctx)
	for range s.concurrency {
		group.Go(func() error {
			for time.Now().Before(end) {
				n, err := s.operation(ctx)
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
