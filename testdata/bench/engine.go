package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// race is an engine that handles events in turns.
type race struct {
	engine
	gate   *gate
	filled int64
	turn   int // how many events wait for a turn
	fills  int // how many are made at once
}

// compareEngine returns the rate of a library over that of the handler's
// transaction by hand, in as many goroutines.
func (b *benchmark) compareEngine(ctx context.Context, how discipline, duration time.Duration, concurrency int) (ratio float64, err error) {
	if how.loop != nil {
		return compare(ctx, duration, how.turn(), side{how.loop(b), concurrency, nil}, side{b.handWritten, concurrency, nil})
	}
	e, err := how.open(ctx, b, concurrency)
	if err != nil {
		return 0, err
	}
	turn := how.turn()
	r := &race{engine: e, gate: newGate()}
	// A turn is as long as its last transactions take, however short it is meant to be.
	r.turn = int(turn.Seconds()*float64(how.eventsPerSecond)) + 2*how.batchSize*concurrency
	r.fills = 2 * r.turn
	if how.allAtOnce {
		r.fills = max(r.fills, int(duration.Seconds()*float64(how.eventsPerSecond)))
	}
	if err := r.refill(ctx); err != nil {
		return 0, err
	}
	running, cancel := context.WithCancel(ctx)
	defer cancel()
	stop, err := e.start(running, r.gate)
	if err != nil {
		return 0, err
	}
	defer func() {
		cancel()
		r.gate.close()
		if stopped := stop(); stopped != nil {
			err = errors.Join(err, fmt.Errorf("stop: %w", stopped))
		}
		if err == nil {
			err = b.verify(ctx, r)
		}
	}()
	silence := b.produce(ctx, how.producers)
	defer func() { err = errors.Join(err, silence()) }() // before all is verified
	work := func(ctx context.Context) (int, error) {
		n := r.gate.work(ctx, turn)
		if r.gate.handled.Load() >= r.filled {
			return 0, errors.New("no event is left: raise eventsPerSecond")
		}
		return int(n), ctx.Err()
	}
	return compare(ctx, duration, turn, side{work, 1, r.refill}, side{b.handWritten, concurrency, nil})
}

// refill makes events unless enough for a turn wait.
func (r *race) refill(ctx context.Context) error {
	if int(r.filled-r.gate.handled.Load()) >= r.turn {
		return nil
	}
	r.filled += int64(r.fills)
	return r.fill(ctx, r.fills)
}

// verify fails unless every event that has been handled is settled and has had
// its effect once.
func (b *benchmark) verify(ctx context.Context, r *race) error {
	settled, err := r.settled(ctx)
	if err != nil {
		return err
	}
	var effects int64
	if err := b.db.WithContext(ctx).Raw(b.expand("SELECT SUM(n) FROM {prefix}effect")).Scan(&effects).Error; err != nil {
		return err
	}
	if handled := r.gate.handled.Load(); handled == 0 || effects != handled || settled != handled {
		return fmt.Errorf("%d events were handled, with %d effects, and %d are settled", handled, effects, settled)
	}
	return nil
}
