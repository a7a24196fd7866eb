package main

import (
	"context"
	"slices"
	"time"
)

// contender is a library that is measured. A nil figure is one that it has not.
type contender struct {
	name string
	// servers are those that it runs on; nil are all.
	servers     []string
	disciplines []discipline
	wakers      []waker
	publisher   func(ctx context.Context, b *benchmark, concurrency int) (publisher, error)
}

var contenders = []contender{gormtxContender, sqltxContender, pgxtxContender, watermillContender, riverContender}

func (c contender) runsOn(server string) bool {
	return c.servers == nil || slices.Contains(c.servers, server)
}

// discipline is a way in which a library handles events.
type discipline struct {
	figure string
	// name is the contender's, or that of one of its settings.
	name string
	// eventsPerSecond is how many events wait for each second, more than can be
	// delivered.
	eventsPerSecond int
	// batchSize is the number of events in one transaction.
	batchSize int
	// allAtOnce is whether all events wait from the beginning. If not, those of a
	// turn are made before it, for a library that a long backlog slows down.
	allAtOnce bool
	// producers is how many publish meanwhile, in both sides' turns.
	producers int
	open      func(ctx context.Context, b *benchmark, concurrency int) (engine, error)
	// loop is, in place of all that, a transaction without any library.
	loop func(b *benchmark) operation
}

func (d discipline) turn() time.Duration {
	if d.batchSize > 1 {
		return longTurn
	}
	return shortTurn
}

// engine delivers events to a handler that changes the effect of each, in a
// transaction, and adds it to the gate's number of those handled.
type engine interface {
	// fill makes n more events wait, of all aggregates in turn.
	fill(ctx context.Context, n int) error
	// start delivers until ctx ends. Every handler's transaction is within the
	// gate. Stop returns when all is at rest.
	start(ctx context.Context, g *gate) (stop func() error, err error)
	// settled returns how many events the library holds for done.
	settled(ctx context.Context) (int64, error)
}

// waker is a library with nothing to do, woken by one event.
type waker struct {
	name string
	// samples is how often it is woken.
	samples int
	// rest is how long it has nothing to do in between, at least, and at most twice
	// that. It is not less than the library sleeps, so that an event finds it at any
	// time of its sleep, nor than it holds notifications back.
	rest  time.Duration
	start starter
}

// starter starts a library with nothing to do, and returns how to publish an event
// in a transaction. The handler enters.
type starter func(ctx context.Context, b *benchmark, enter func()) (publish commit, stop func() error, err error)

// commit publishes an event, and returns when it has committed.
type commit func(ctx context.Context) (committed time.Time, err error)

// stamped is a commit in this process.
func stamped(publish func(ctx context.Context) error) commit {
	return func(ctx context.Context) (time.Time, error) {
		err := publish(ctx)
		return time.Now(), err
	}
}

// publisher publishes an event in a transaction that changes a counter, beside
// the same transaction with a bare INSERT, through the same driver.
type publisher struct {
	publish, bareInsert operation
	close               func()
}
