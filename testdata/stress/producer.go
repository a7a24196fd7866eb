package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/onward-go/outbox/events"
)

var errRollback = errors.New("roll back")

// startProducers starts the producer processes and returns a function that
// waits for them. Each commits its share of the events.
func startProducers(ctx context.Context, config Config) (wait func() error, err error) {
	executable, err := os.Executable()
	if err != nil {
		return nil, err
	}
	var group errgroup.Group
	for number := range config.Processes {
		share := config
		if number > 0 {
			share.Open = 0 // one is enough
		}
		share.Events = (config.Events + config.Processes - 1) / config.Processes
		share.Producers = config.Producers / config.Processes
		text, err := json.Marshal(share)
		if err != nil {
			return nil, err
		}
		child := exec.CommandContext(ctx, executable)
		child.Env = append(os.Environ(), producerVar+"="+string(text))
		child.Stderr = os.Stderr
		if err := child.Start(); err != nil {
			return nil, fmt.Errorf("start a producer: %w", err)
		}
		group.Go(child.Wait)
	}
	return group.Wait, nil
}

// produceFromEnvironment is the life of a producer process.
func produceFromEnvironment() error {
	config, err := configFromEnvironment()
	if err != nil {
		return err
	}
	db, err := open(config, config.Producers)
	if err != nil {
		return err
	}
	defer db.close()
	control, err := db.family.control(config.Control)
	if err != nil {
		return err
	}
	publisher := events.NewPublisher(controlStore{db.outbox, db, control})
	var committed atomic.Int64
	group, ctx := errgroup.WithContext(context.Background())
	for number := range config.Producers {
		p := producer{database: db, publisher: publisher, config: config}
		if number > 0 {
			p.config.Open = 0
		}
		group.Go(func() error { return p.produce(ctx, &committed) })
	}
	return group.Wait()
}

type producer struct {
	*database
	publisher *events.Publisher
	config    Config
}

// produce commits transactions until all producers together have committed
// their share. What the server rolls back counts for nothing. One producer
// stays open for a while when the run has got going.
func (p producer) produce(ctx context.Context, committed *atomic.Int64) error {
	held := p.config.Open == 0
	for !held || committed.Load() < int64(p.config.Events) {
		hold := !held && committed.Load() >= int64(p.config.Events/4)
		transaction := p.transaction
		if hold {
			transaction = p.stayOpen
		}
		n, err := transaction(ctx)
		if p.family.again(err) {
			continue
		}
		if err != nil {
			return err
		}
		committed.Add(int64(n))
		held = held || hold
	}
	return nil
}

// transaction changes one or two aggregates and publishes each change, with
// pauses, savepoints and several calls of Publish, and rolls back now and
// then. It returns how many events it committed.
func (p producer) transaction(ctx context.Context) (committed int, err error) {
	err = p.outbox.Atomically(ctx, func(ctx context.Context) error {
		p.pause(3)
		for _, id := range p.pick() {
			if rand.IntN(5) == 0 { // a savepoint, rolled back or not
				n := 0
				err := p.outbox.Atomically(ctx, func(ctx context.Context) (err error) {
					if n, err = p.change(ctx, id); err == nil && rand.IntN(2) == 0 {
						err = errRollback
					}
					return err
				})
				switch {
				case err == nil:
					committed += n
				case !errors.Is(err, errRollback):
					return err
				}
			}
			for range 1 + rand.IntN(2) {
				n, err := p.change(ctx, id)
				if err != nil {
					return err
				}
				committed += n
			}
		}
		p.pause(2)
		if rand.IntN(10) == 0 {
			return errRollback
		}
		return nil
	})
	if errors.Is(err, errRollback) {
		return 0, nil
	}
	return committed, err
}

// stayOpen publishes, keeps the transaction open while everybody else goes on,
// and publishes again. Its aggregate is its own, so that nobody waits for it.
func (p producer) stayOpen(ctx context.Context) (committed int, err error) {
	err = p.outbox.Atomically(ctx, func(ctx context.Context) error {
		for _, wait := range []time.Duration{p.config.Open, 0} {
			n, err := p.change(ctx, p.config.Aggregates)
			if err != nil {
				return err
			}
			committed += n
			time.Sleep(wait)
		}
		return nil
	})
	return committed, err
}

// pick returns one or two aggregates, sorted, so that producers do not
// deadlock.
func (p producer) pick() []int {
	picked := []int{rand.IntN(p.config.Aggregates)}
	if rand.IntN(4) == 0 {
		picked = append(picked, rand.IntN(p.config.Aggregates))
	}
	slices.Sort(picked)
	return slices.Compact(picked)
}

// change raises the aggregate's version, which locks it, and then publishes
// what it did: one event a version, in one call.
func (p producer) change(ctx context.Context, id int) (published int, err error) {
	versions := 1 + rand.IntN(2)
	if err := p.exec(ctx, "UPDATE "+p.table("aggregates")+" SET version = version + ? WHERE id = ?", versions, id); err != nil {
		return 0, err
	}
	version, err := p.number(ctx, "SELECT version FROM "+p.table("aggregates")+" WHERE id = ?", id)
	if err != nil {
		return 0, err
	}
	p.pause(3)
	kind := eventType
	if !p.config.hasHandler(id) {
		kind = "stress.Unhandled"
	}
	var evts []events.Event
	for i := range versions {
		evts = append(evts, events.Event{
			Type:          kind,
			AggregateType: "Aggregate",
			AggregateID:   strconv.Itoa(id),
			Payload:       []byte(strconv.Itoa(version - versions + 1 + i)),
		})
	}
	if err := p.publisher.Publish(ctx, evts...); err != nil {
		return 0, err
	}
	p.pause(3)
	return versions, nil
}

const eventType = "stress.Changed"

// pause sleeps once in so many calls, and once in two hundred of these for
// twenty times as long.
func (p producer) pause(in int) {
	if p.config.Pause == 0 || rand.IntN(in) != 0 {
		return
	}
	d := rand.N(p.config.Pause)
	if rand.IntN(200) == 0 {
		d *= 20
	}
	time.Sleep(d)
}
