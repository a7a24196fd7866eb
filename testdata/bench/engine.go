package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"gorm.io/gorm"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/gormtx"
)

// discipline is a way to handle events.
type discipline struct {
	name string
	// eventsPerSecond is how many events wait for each second, more than can be
	// delivered.
	eventsPerSecond int
	options         []events.Option
	subscribe       func(b *benchmark, d *events.Dispatcher, e *engine) error
}

var (
	single = discipline{"dispatch", 5000, nil, func(b *benchmark, d *events.Dispatcher, e *engine) error {
		return d.Subscribe(event.Type, "count", func(ctx context.Context, evt events.Event) error {
			e.enter(1)
			return b.count(gormtx.Tx(ctx), evt)
		})
	}}
	batchOfRows = discipline{"batch-rows", 30_000, []events.Option{events.WithBatchSize(500)}, func(b *benchmark, d *events.Dispatcher, e *engine) error {
		return d.SubscribeBatch(event.Type, "count", func(ctx context.Context, evts []events.Event) error {
			e.enter(len(evts))
			for _, evt := range evts {
				if err := b.count(gormtx.Tx(ctx), evt); err != nil {
					return err
				}
			}
			return nil
		})
	}}
	batchOfSets = discipline{"batch-sets", 120_000, []events.Option{events.WithBatchSize(1000)}, func(b *benchmark, d *events.Dispatcher, e *engine) error {
		return d.SubscribeBatch(event.Type, "count", func(ctx context.Context, evts []events.Event) error {
			e.enter(len(evts))
			return b.countAll(gormtx.Tx(ctx), evts)
		})
	}}
)

// count changes the counter of an event's aggregate.
func (b *benchmark) count(tx *gorm.DB, evt events.Event) error {
	counter, err := strconv.Atoi(evt.AggregateID)
	if err != nil {
		return err
	}
	return b.change(tx, counter)
}

// countAll does it for many by one statement.
func (b *benchmark) countAll(tx *gorm.DB, evts []events.Event) error {
	type change struct {
		ID string `json:"id"`
		N  int    `json:"n"`
	}
	changes, place := []change{}, map[string]int{}
	for _, evt := range evts {
		i, ok := place[evt.AggregateID]
		if !ok {
			i = len(changes)
			place[evt.AggregateID] = i
			changes = append(changes, change{ID: evt.AggregateID})
		}
		changes[i].N++
	}
	text, err := json.Marshal(changes)
	if err != nil {
		return err
	}
	return tx.Exec(b.expand(b.updateAll), string(text)).Error
}

// engine is a dispatcher that polls, and whose handlers stand still while it is
// not its turn.
type engine struct {
	*delivery
	turn    sync.RWMutex // held for writing while it is another's turn
	handled atomic.Int64
	filled  int64
}

// startEngine lets a dispatcher deliver what has been filled in, once it is its
// turn.
func (b *benchmark) startEngine(ctx context.Context, how discipline, concurrency, filled int) (*engine, error) {
	e := &engine{filled: int64(filled)}
	e.turn.Lock()
	d := events.NewDispatcher(b.outbox, b.outbox, b.outbox, b.outbox, append(how.options, events.WithConcurrency(concurrency))...)
	if err := how.subscribe(b, d, e); err != nil {
		return nil, err
	}
	e.delivery = start(ctx, d)
	return e, nil
}

// enter waits until it is the engine's turn to handle events.
func (e *engine) enter(n int) {
	e.turn.RLock()
	defer e.turn.RUnlock()
	e.handled.Add(int64(n))
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
		if n >= e.filled {
			return 0, errors.New("no event is left: raise eventsPerSecond")
		}
		return int(n - before), nil
	}
}

// compareEngine returns the rate of the dispatcher over that of the handler's
// transaction by hand, in as many goroutines.
func (b *benchmark) compareEngine(ctx context.Context, how discipline, duration time.Duration, concurrency int) (ratio float64, err error) {
	filled := int(duration.Seconds() * float64(how.eventsPerSecond))
	if err := b.fill(ctx, filled); err != nil {
		return 0, err
	}
	e, err := b.startEngine(ctx, how, concurrency, filled)
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
