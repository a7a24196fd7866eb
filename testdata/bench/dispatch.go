package main

import (
	"context"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/gormtx"
)

// delivery is a dispatcher that polls until it is stopped.
type delivery struct {
	cancel context.CancelFunc
	done   chan error
}

func start(ctx context.Context, d *events.Dispatcher) *delivery {
	ctx, cancel := context.WithCancel(ctx)
	r := &delivery{cancel, make(chan error, 1)}
	go func() { r.done <- d.Poll(ctx, 50*time.Millisecond, 500, nil) }()
	return r
}

func (d *delivery) stop() error {
	d.cancel()
	return <-d.done
}

var errSick = errors.New("poison")

// poisonRuns is how often the events of healthy aggregates are delivered beside a
// failing one, and as often without.
const (
	poisonRuns   = 5
	poisonEvents = 3000
)

// comparePoison returns the rate at which healthy aggregates are delivered while
// another one is in back-off, over the rate without it.
func (b *benchmark) comparePoison(ctx context.Context, concurrency int) (float64, error) {
	var applied atomic.Int64
	var sick atomic.Bool
	d := events.NewDispatcher(b.outbox, b.outbox, b.outbox, b.outbox, events.WithName("poison"),
		events.WithConcurrency(concurrency), events.WithMaxAttempts(1_000_000), events.WithBackoff(50*time.Millisecond, 100*time.Millisecond))
	err := d.Subscribe("bench.Poison", "poison", func(ctx context.Context, evt events.Event) error {
		if evt.AggregateID == "sick" && sick.Load() {
			return errSick
		}
		if err := b.change(gormtx.Tx(ctx), anyCounter()); err != nil {
			return err
		}
		applied.Add(1)
		return nil
	})
	if err != nil {
		return 0, err
	}
	run := func(poison bool) (rate float64, err error) {
		sick.Store(poison)
		applied.Store(0)
		evts := []events.Event{{Type: "bench.Poison", AggregateType: "Counter", AggregateID: "sick"}}
		for i := range poisonEvents {
			evts = append(evts, events.Event{Type: "bench.Poison", AggregateType: "Counter", AggregateID: fmt.Sprint(i % 999)})
		}
		if err := b.outbox.Atomically(ctx, func(ctx context.Context) error { return b.publisher.Publish(ctx, evts...) }); err != nil {
			return 0, err
		}
		begin := time.Now()
		r := start(ctx, d)
		defer func() { err = errors.Join(err, r.stop()) }()
		if err := reach(ctx, &applied, poisonEvents); err != nil {
			return 0, err
		}
		rate = poisonEvents / time.Since(begin).Seconds()
		sick.Store(false)
		return rate, reach(ctx, &applied, poisonEvents+1)
	}
	var ratios []float64
	for range poisonRuns {
		with, err := run(true)
		without, err2 := run(false)
		if err := errors.Join(err, err2); err != nil {
			return 0, err
		}
		ratios = append(ratios, with/without)
	}
	slices.Sort(ratios)
	return ratios[poisonRuns/2], nil
}

// reach waits until a counter is there.
func reach(ctx context.Context, counter *atomic.Int64, n int64) error {
	for counter.Load() < n {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Millisecond):
		}
	}
	return nil
}

// quick is the number of producers beside the one that stays open.
const quick = 15

// compareOpen returns the 99th percentile of the time from commit to handler while
// one producer keeps a transaction open that has published, over that without it,
// and the latter.
func (b *benchmark) compareOpen(ctx context.Context, open time.Duration, pace int) (ratio float64, without time.Duration, err error) {
	var delays delays
	d := events.NewDispatcher(b.outbox, b.outbox, b.outbox, b.outbox, events.WithName("open"), events.WithStartNow())
	if err := d.Subscribe("bench.Open", "open", func(ctx context.Context, evt events.Event) error {
		delays.handled(evt.ID)
		return b.change(gormtx.Tx(ctx), anyCounter())
	}); err != nil {
		return 0, 0, err
	}
	if _, err := d.RunOnce(ctx, 1); err != nil { // it starts before the producers do
		return 0, 0, err
	}
	publisher := events.NewPublisher(b.outbox, events.WithNotify(d.Wake))
	r := start(ctx, d)
	defer func() { err = errors.Join(err, r.stop()) }()
	var with, alone []time.Duration
	for range 2 {
		for _, isOpen := range []bool{false, true} {
			phase, err := b.phase(ctx, publisher, &delays, open, pace, isOpen)
			if err != nil {
				return 0, 0, err
			}
			if isOpen {
				with = append(with, phase...)
			} else {
				alone = append(alone, phase...)
			}
		}
	}
	without = p99(alone)
	return p99(with).Seconds() / without.Seconds(), without, nil
}

// phase lets the quick producers run for a while, beside one that stays open for
// all of it, or not.
func (b *benchmark) phase(ctx context.Context, publisher *events.Publisher, delays *delays, open time.Duration, pace int, isOpen bool) ([]time.Duration, error) {
	var group sync.WaitGroup
	errs := make(chan error, quick+1)
	publish := func(evt events.Event, hold time.Duration) error {
		return b.outbox.Atomically(ctx, func(ctx context.Context) error {
			if err := publisher.Publish(ctx, evt); err != nil {
				return err
			}
			time.Sleep(hold)
			return nil
		})
	}
	if isOpen {
		group.Go(func() {
			errs <- publish(events.Event{Type: "bench.Open", AggregateType: "Counter", AggregateID: "open"}, open)
		})
	}
	end := time.Now().Add(open)
	for i := range quick {
		group.Go(func() {
			for time.Now().Before(end) {
				evt := events.Event{ID: events.NewID(), Type: "bench.Open", AggregateType: "Counter", AggregateID: fmt.Sprint(i)}
				if err := publish(evt, 0); err != nil {
					errs <- err
					return
				}
				delays.committed(evt.ID)
				time.Sleep(mathrand.N(2 * time.Second / time.Duration(pace)))
			}
		})
	}
	group.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return delays.take(ctx)
}

// delays are the times from commit to handler.
type delays struct {
	mu   sync.Mutex
	open map[string]time.Time // commits and handlers without the other
	done []time.Duration
	seen map[string]bool // handled; a handler whose transaction fails runs again
}

func (d *delays) committed(id string) { d.note(id, 1) }
func (d *delays) handled(id string)   { d.note(id, -1) }

// note counts a handler that is entered before the producer knows of its commit
// as one without a delay.
func (d *delays) note(id string, sign int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.open == nil {
		d.open, d.seen = map[string]time.Time{}, map[string]bool{}
	}
	if sign < 0 {
		if d.seen[id] {
			return
		}
		d.seen[id] = true
	}
	first, both := d.open[id]
	if !both {
		d.open[id] = time.Now()
		return
	}
	delete(d.open, id)
	if sign > 0 {
		d.done = append(d.done, 0)
	} else {
		d.done = append(d.done, time.Since(first))
	}
}

// take waits until all are complete.
func (d *delays) take(ctx context.Context) ([]time.Duration, error) {
	for {
		d.mu.Lock()
		left, done := 0, d.done
		for id := range d.open {
			if strings.Contains(id, "-") {
				left++
			}
		}
		if left <= 1 { // the open producer's own event is not counted
			d.open, d.done = nil, nil
			d.mu.Unlock()
			return done, nil
		}
		d.mu.Unlock()
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(time.Millisecond):
		}
	}
}

func p99(delays []time.Duration) time.Duration {
	slices.Sort(delays)
	return delays[len(delays)*99/100]
}
