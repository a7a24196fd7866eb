package main

import (
	"context"
	"encoding/json"
	"strconv"
	"time"

	"gorm.io/gorm"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/gormtx"
)

// gormtxContender is this library. Events of an aggregate are handled in order,
// in transactions with a marker.
var gormtxContender = contender{
	name: "gormtx",
	disciplines: []discipline{
		dispatcherOf("dispatch", 5000, 1, (*dispatcher).single),
		dispatcherOf("batch-rows", 30_000, 500, (*dispatcher).rows),
		dispatcherOf("batch-sets", 120_000, 1000, (*dispatcher).sets),
	},
	wakers: []waker{
		{"gormtx", 300, 20 * time.Millisecond, wakeDispatcher(true)},
		{"gormtx-poll", 40, time.Second, wakeDispatcher(false)},
	},
	publisher: func(_ context.Context, b *benchmark, _ int) (publisher, error) {
		return publisher{b.publish, b.bareInsert, func() {}}, nil
	},
}

// dispatcher is the dispatcher as an engine.
type dispatcher struct {
	*benchmark
	options   []events.Option
	subscribe func(*dispatcher, *events.Dispatcher, *gate) error
}

func dispatcherOf(figure string, eventsPerSecond, batchSize int, subscribe func(*dispatcher, *events.Dispatcher, *gate) error) discipline {
	return discipline{figure, "gormtx", eventsPerSecond, batchSize, true, func(_ context.Context, b *benchmark, concurrency int) (engine, error) {
		options := []events.Option{events.WithConcurrency(concurrency)}
		if batchSize > 1 {
			options = append(options, events.WithBatchSize(batchSize))
		}
		return &dispatcher{b, options, subscribe}, nil
	}}
}

// turnwise are transactions of handlers within a gate.
type turnwise struct {
	*gormtx.Outbox
	gate *gate
}

func (t turnwise) Atomically(ctx context.Context, fn func(context.Context) error) error {
	return t.gate.within(func() error { return t.Outbox.Atomically(ctx, fn) })
}

func (d *dispatcher) start(ctx context.Context, g *gate) (func() error, error) {
	e := events.NewDispatcher(d.outbox, d.outbox, turnwise{d.outbox, g}, d.outbox, d.options...)
	if err := d.subscribe(d, e, g); err != nil {
		return nil, err
	}
	return start(ctx, e).stop, nil
}

func (d *dispatcher) settled(ctx context.Context) (n int64, err error) {
	err = d.db.WithContext(ctx).Raw(d.expand("SELECT COUNT(*) FROM {prefix}outbox_idempotency")).Scan(&n).Error
	return n, err
}

func (d *dispatcher) single(e *events.Dispatcher, g *gate) error {
	return e.Subscribe(event.Type, "count", func(ctx context.Context, evt events.Event) error {
		return g.count(1, d.count(gormtx.Tx(ctx), evt))
	})
}

func (d *dispatcher) rows(e *events.Dispatcher, g *gate) error {
	return e.SubscribeBatch(event.Type, "count", func(ctx context.Context, evts []events.Event) error {
		for _, evt := range evts {
			if err := d.count(gormtx.Tx(ctx), evt); err != nil {
				return err
			}
		}
		return g.count(len(evts), nil)
	})
}

func (d *dispatcher) sets(e *events.Dispatcher, g *gate) error {
	return e.SubscribeBatch(event.Type, "count", func(ctx context.Context, evts []events.Event) error {
		return g.count(len(evts), d.countAll(gormtx.Tx(ctx), evts))
	})
}

// count changes the effect of an event's aggregate.
func (d *dispatcher) count(tx *gorm.DB, evt events.Event) error {
	counter, err := strconv.Atoi(evt.AggregateID)
	if err != nil {
		return err
	}
	return tx.Exec(d.expand("UPDATE {prefix}effect SET n = n + 1 WHERE id = ?"), counter).Error
}

// countAll does it for many by one statement.
func (d *dispatcher) countAll(tx *gorm.DB, evts []events.Event) error {
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
	return tx.Exec(d.expand(d.updateAll), string(text)).Error
}

// wakeDispatcher starts a dispatcher that looks once a second and, if woken, after
// each commit.
func wakeDispatcher(woken bool) func(context.Context, *benchmark, func()) (func(context.Context) error, func() error, error) {
	return func(ctx context.Context, b *benchmark, enter func()) (func(context.Context) error, func() error, error) {
		d := events.NewDispatcher(b.outbox, b.outbox, b.outbox, b.outbox)
		if err := d.Subscribe(event.Type, "wake", func(context.Context, events.Event) error {
			enter()
			return nil
		}); err != nil {
			return nil, nil, err
		}
		if _, err := d.RunOnce(ctx, 1); err != nil {
			return nil, nil, err
		}
		publisher := b.publisher
		if woken {
			publisher = events.NewPublisher(b.outbox, events.WithNotify(d.Wake))
		}
		ctx, cancel := context.WithCancel(ctx)
		polling := &delivery{cancel, make(chan error, 1)}
		go func() { polling.done <- d.Poll(ctx, time.Second, 100, nil) }()
		return func(ctx context.Context) error {
			return b.outbox.Atomically(ctx, func(ctx context.Context) error { return publisher.Publish(ctx, event) })
		}, polling.stop, nil
	}
}
