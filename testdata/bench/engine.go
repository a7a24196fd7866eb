package main

import (
	"context"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/gormtx"
)

// engine is a dispatcher that polls, and whose handlers stand still while it is
// not its turn.
type engine struct {
	*delivery
	turn     sync.RWMutex // held for writing while it is another's turn
	handled  atomic.Int64
	expected int64
}

// startEngine lets a dispatcher deliver what has been filled in, once it is its
// turn.
func (b *benchmark) startEngine(ctx context.Context, concurrency, events int) (*engine, error) {
	e := &engine{expected: int64(events)}
	e.turn.Lock()
	d := b.newDispatcher(concurrency)
	err := d.Subscribe(event.Type, "count", e.handler(b))
	if err != nil {
		return nil, err
	}
	e.delivery = start(ctx, d)
	return e, nil
}

func (b *benchmark) newDispatcher(concurrency int) *events.Dispatcher {
	return events.NewDispatcher(b.outbox, b.outbox, b.outbox, b.outbox, events.WithConcurrency(concurrency))
}

func (e *engine) handler(b *benchmark) events.Handler {
	return func(ctx context.Context, _ events.Event) error {
		e.turn.RLock()
		defer e.turn.RUnlock()
		e.handled.Add(1)
		return b.change(gormtx.Tx(ctx), mathrand.IntN(counters))
	}
}

// work lets the handlers go on for a while, and returns how many events there
// were.
func (e *engine) work(turn time.Duration) operation {
	return func(ctx context.Context) (int, error) {
		before := e.handled.Load()
		e.turn.Unlock()
		defer e.turn.Lock()
		select {
		case <-time.After(turn):
		case <-ctx.Done():
		}
		n := e.handled.Load()
		if n >= e.expected {
			return 0, errors.New("no event is left: raise eventsPerSecond")
		}
		return int(n - before), nil
	}
}

// compareDispatch returns the rate of the dispatcher over that of the handler's
// transaction by hand.
func (b *benchmark) compareDispatch(ctx context.Context, duration time.Duration, concurrency int) (ratio float64, err error) {
	filled := int(duration.Seconds() * eventsPerSecond)
	if err := b.fill(ctx, filled); err != nil {
		return 0, err
	}
	e, err := b.startEngine(ctx, concurrency, filled)
	if err != nil {
		return 0, err
	}
	defer func() {
		e.turn.Unlock()
		if stopped := e.stop(); err == nil && stopped != nil {
			err = fmt.Errorf("stop: %w", stopped)
		}
	}()
	return compare(ctx, duration, side{e.work(turnOf(duration)), 1}, side{b.handWritten, concurrency})
}
