package main

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/persistence"
	"github.com/onward-go/outbox/pgxtx"
)

// This library is a contender for each of its faces. Events of an aggregate are
// handled in order, in transactions with a marker.
var (
	gormtxContender = withGORM(ours(gormFace, nil))
	sqltxContender  = ours(sqlFace, nil)
	pgxtxContender  = withPGX(ours(pgxFace, []string{"postgres"}))
)

func ours(f face, servers []string) contender {
	single := dispatcherOf(f, "dispatch", 12_000, 1, (*dispatcher).single)
	producing := single
	producing.name, producing.producers = f.name+"-producing", 4
	return contender{
		name:    f.name,
		servers: servers,
		disciplines: []discipline{
			single,
			producing,
			dispatcherOf(f, "batch-rows", 15_000, batchOfRows, (*dispatcher).rows),
			dispatcherOf(f, "batch-sets", 60_000, batchOfSets, (*dispatcher).sets),
		},
		publisher: func(_ context.Context, b *benchmark, concurrency int) (publisher, error) {
			o, err := f.open(b, concurrency)
			if err != nil {
				return publisher{}, err
			}
			return publisher{b.publishThrough(f, o), o.bareInsert, o.close}, nil
		},
	}
}

// withGORM adds what is measured once: what GORM alone costs, what a batch can gain
// at most, what asynchronous commits do, and how the dispatcher wakes.
func withGORM(c contender) contender {
	bare := discipline{figure: "dispatch", name: "gorm", loop: func(b *benchmark) operation {
		return b.throughGORM(func() []statement {
			return []statement{b.mark(events.NewID()), b.update(anyCounter())}
		})
	}}
	rows := discipline{figure: "batch-rows", name: "by-hand", batchSize: batchOfRows, loop: (*benchmark).rowsByHand}
	sets := discipline{figure: "batch-sets", name: "by-hand", batchSize: batchOfSets, loop: (*benchmark).setsByHand}
	c.disciplines = append(c.disciplines, bare, rows, sets,
		dispatcherOf(gormFace, "flush", 5000, 1, (*dispatcher).single),
		dispatcherOf(gormFaceAsync, "flush", 5000, 1, (*dispatcher).single))
	c.wakers = []waker{
		{"gormtx", 300, 20 * time.Millisecond, wakeDispatcher(true)},
		{"gormtx-poll", 40, time.Second, wakeDispatcher(false)},
	}
	return c
}

// withPGX adds what a chain of transactions can gain at most, and how a dispatcher
// wakes that hears of another process's commits by LISTEN and NOTIFY.
func withPGX(c contender) contender {
	flight := dispatcherOf(pgxFace, "batch-rows", 30_000, batchOfRows, (*dispatcher).flight)
	flight.name = "pgxtx-flight"
	c.disciplines = append(c.disciplines, flight,
		discipline{figure: "dispatch", name: "by-hand", loop: (*benchmark).chainByHand})
	c.wakers = []waker{{"pgxtx-notify", 300, 20 * time.Millisecond, wakeListener}}
	return c
}

// dispatcher is the dispatcher as an engine.
type dispatcher struct {
	*benchmark
	face      face
	outbox    opened
	options   []events.Option
	subscribe func(*dispatcher, *events.Dispatcher, *gate) error
}

func dispatcherOf(f face, figure string, eventsPerSecond, batchSize int, subscribe func(*dispatcher, *events.Dispatcher, *gate) error) discipline {
	return discipline{
		figure: figure, name: f.name, eventsPerSecond: eventsPerSecond, batchSize: batchSize, allAtOnce: true,
		open: func(_ context.Context, b *benchmark, concurrency int) (engine, error) {
			options := []events.Option{events.WithConcurrency(concurrency)}
			if batchSize > 1 {
				options = append(options, events.WithBatchSize(batchSize))
			}
			o, err := f.open(b, concurrency)
			return &dispatcher{b, f, o, options, subscribe}, err
		},
	}
}

// turnwise are transactions of handlers within a gate.
type turnwise struct {
	stores
	gate *gate
}

func (t turnwise) Atomically(ctx context.Context, fn func(context.Context) error) error {
	return t.gate.within(func() error { return t.stores.Atomically(ctx, fn) })
}

// Chain lets no transaction wait for the next one beyond the turn.
func (t turnwise) Chain(persistence.Transactor) persistence.Chain {
	return turnwiseChain{t.stores.Chain(t.stores), t.gate}
}

type turnwiseChain struct {
	persistence.Chain
	gate *gate
}

func (c turnwiseChain) Atomically(ctx context.Context, fn func(context.Context) error, committed func(error)) (held bool, err error) {
	if !c.gate.tryEnter() {
		c.Flush()
		if err := c.gate.enter(); err != nil {
			return false, err
		}
	}
	held, err = c.Chain.Atomically(ctx, fn, func(err error) {
		c.gate.leave()
		committed(err)
	})
	if !held {
		c.gate.leave()
	}
	return held, err
}

func (d *dispatcher) start(ctx context.Context, g *gate) (func() error, error) {
	o := d.outbox
	e := events.NewDispatcher(o, o, turnwise{o.stores, g}, o, d.options...)
	if err := d.subscribe(d, e, g); err != nil {
		return nil, err
	}
	polling := start(ctx, e)
	return func() error {
		defer o.close()
		return polling.stop()
	}, nil
}

func (d *dispatcher) settled(ctx context.Context) (n int64, err error) {
	err = d.db.WithContext(ctx).Raw(d.expand("SELECT COUNT(*) FROM {prefix}outbox_idempotency")).Scan(&n).Error
	return n, err
}

func (d *dispatcher) single(e *events.Dispatcher, g *gate) error {
	return e.Subscribe(event.Type, "count", func(ctx context.Context, evt events.Event) error {
		return g.count(1, d.count(ctx, evt))
	})
}

func (d *dispatcher) rows(e *events.Dispatcher, g *gate) error {
	return e.SubscribeBatch(event.Type, "count", func(ctx context.Context, evts []events.Event) error {
		for _, evt := range evts {
			if err := d.count(ctx, evt); err != nil {
				return err
			}
		}
		return g.count(len(evts), nil)
	})
}

// flight updates row by row, too, but sends all the statements at once, as pgx can.
func (d *dispatcher) flight(e *events.Dispatcher, g *gate) error {
	return e.SubscribeBatch(event.Type, "count", func(ctx context.Context, evts []events.Event) error {
		var updates pgx.Batch
		for _, evt := range evts {
			counter, err := strconv.Atoi(evt.AggregateID)
			if err != nil {
				return err
			}
			updates.Queue(d.expand(d.effect), counter)
		}
		return g.count(len(evts), pgxtx.Tx(ctx).SendBatch(ctx, &updates).Close())
	})
}

func (d *dispatcher) sets(e *events.Dispatcher, g *gate) error {
	return e.SubscribeBatch(event.Type, "count", func(ctx context.Context, evts []events.Event) error {
		return g.count(len(evts), d.countAll(ctx, evts))
	})
}

// count changes the effect of an event's aggregate.
func (d *dispatcher) count(ctx context.Context, evt events.Event) error {
	counter, err := strconv.Atoi(evt.AggregateID)
	if err != nil {
		return err
	}
	return d.face.exec(ctx, d.expand(d.effect), counter)
}

// change is how often an aggregate's counter is to be raised.
type change struct {
	ID string `json:"id"`
	N  int    `json:"n"`
}

// countAll does it for many by one statement.
func (d *dispatcher) countAll(ctx context.Context, evts []events.Event) error {
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
	return d.face.exec(ctx, d.expand(d.updateAll), string(text))
}

// produce lets producers publish, each a hundred times a second, until it is told
// to stop.
func (b *benchmark) produce(ctx context.Context, producers int) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	errs := make(chan error, producers)
	publish := b.publishThrough(gormFace, b.outbox)
	for range producers {
		group.Go(func() {
			tick := time.NewTicker(10 * time.Millisecond)
			defer tick.Stop()
			for {
				select {
				case <-tick.C:
				case <-ctx.Done():
					return
				}
				if _, err := publish(ctx); err != nil && ctx.Err() == nil {
					errs <- err
					return
				}
			}
		})
	}
	return func() error {
		cancel()
		group.Wait()
		close(errs)
		var err error
		for e := range errs {
			err = errors.Join(err, e)
		}
		return err
	}
}

// idle returns a dispatcher with nothing to do, whose handler enters.
func idle(ctx context.Context, s stores, enter func()) (*events.Dispatcher, error) {
	d := events.NewDispatcher(s, s, s, s)
	err := d.Subscribe(event.Type, "wake", func(context.Context, events.Event) error {
		enter()
		return nil
	})
	if err == nil {
		_, err = d.RunOnce(ctx, 1)
	}
	return d, err
}

// wakeDispatcher starts a dispatcher that looks once a second and, if woken, after
// each commit.
func wakeDispatcher(woken bool) starter {
	return func(ctx context.Context, b *benchmark, enter func()) (commit, func() error, error) {
		d, err := idle(ctx, b.outbox, enter)
		if err != nil {
			return nil, nil, err
		}
		publisher := b.publisher
		if woken {
			publisher = events.NewPublisher(b.outbox, events.WithNotify(d.Wake))
		}
		ctx, cancel := context.WithCancel(ctx)
		polling := &delivery{cancel, make(chan error, 1)}
		go func() { polling.done <- d.Poll(ctx, time.Second, 100, nil) }()
		return stamped(func(ctx context.Context) error {
			return b.outbox.Atomically(ctx, func(ctx context.Context) error { return publisher.Publish(ctx, event) })
		}), polling.stop, nil
	}
}
