package crash

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/gormtx"
	"github.com/onward-go/outbox/persistence"
)

const (
	dispatcherName = "crash"
	handlerName    = "effect"
)

// replica is what a replica's process is told to be.
type replica struct {
	Kind, DSN      string
	Lease          time.Duration
	HandlerTimeout time.Duration // 0: the default
	MaxAttempts    int           // 0: so many that no event becomes a dead letter
	// Linger is how long one handler in ten takes, at most, between its effect
	// and its commit; with Exit, half of what each takes. It says so, for whoever
	// wants to kill it there.
	Linger time.Duration
	Hold   string // the event whose handler waits for the word to go on, heeding nothing else
	Exit   string // the event that ends the process
	Batch  bool   // has two handlers of batches, too
	Sick   bool   // some events fail for good, until they are mended
	// Asynchronous commits of the handlers' transactions may be lost with the server.
	Asynchronous bool
}

// replicaVar holds the replica of a process.
const replicaVar = "OUTBOX_CRASH_REPLICA"

func isReplica() bool { return os.Getenv(replicaVar) != "" }

// exitCode is that of a process which an event has ended.
const exitCode = 42

// say tells the parent something.
func say(word, text string) {
	line, _ := json.Marshal(message{word, text}) // of two strings: it does not fail
	_, _ = os.Stdout.Write(append(line, '\n'))   // a parent that is gone shows at stdin
}

// message is a line of a replica's output.
type message struct{ Word, Text string }

// serve is the life of a replica. It ends with its parent.
func serve() int {
	var r replica
	if err := json.Unmarshal([]byte(os.Getenv(replicaVar)), &r); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if err := r.poll(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// What the parent may tell a replica.
const (
	wordGoOn  = "go on" // with the handler that is held
	wordWrite = "write" // all that a holder can, with the first lease
)

func (r replica) poll() error {
	const concurrency = 4
	var outboxOptions []gormtx.Option
	if r.Asynchronous {
		outboxOptions = append(outboxOptions, gormtx.WithAsynchronousCommit())
	}
	db, err := open(r.Kind, r.DSN, concurrency+2, outboxOptions...)
	for ; err != nil; db, err = open(r.Kind, r.DSN, concurrency+2, outboxOptions...) {
		say("error", err.Error())
		time.Sleep(20 * time.Millisecond) // the server is down
	}
	if r.MaxAttempts == 0 {
		r.MaxAttempts = 1000
	}
	if r.HandlerTimeout == 0 {
		r.HandlerTimeout = events.DefaultHandlerTimeout
	}
	opts := []events.Option{
		events.WithName(dispatcherName), events.WithLease(r.Lease), events.WithMaxAttempts(r.MaxAttempts),
		events.WithHandlerTimeout(r.HandlerTimeout), events.WithBackoff(50*time.Millisecond, 500*time.Millisecond),
	}
	if kinds[r.Kind].server != nil {
		opts = append(opts, events.WithConcurrency(concurrency))
	}
	cursors := &watchedCursors{OutboxCursorStore: db.Outbox}
	goOn := make(chan struct{})
	go func() {
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			switch lines.Text() {
			case wordGoOn:
				close(goOn)
			case wordWrite:
				cursors.writeStale(db)
			}
		}
		os.Exit(0)
	}()
	d := events.NewDispatcher(db.Outbox, cursors, db.Outbox, db.Outbox, opts...)
	if err := d.Subscribe(eventType, handlerName, r.handler(goOn)); err != nil {
		return err
	}
	if r.Batch {
		for _, table := range []string{"batch_effects", "more_batch_effects"} {
			if err := d.SubscribeBatch(eventType, handlerOf[table], r.batchHandler(table)); err != nil {
				return err
			}
		}
	}
	return d.Poll(context.Background(), 50*time.Millisecond, 100, func(err error) {
		say("error", err.Error())
	})
}

func (r replica) handler(goOn <-chan struct{}) events.Handler {
	var held atomic.Bool
	return func(ctx context.Context, evt events.Event) error {
		aggregate, version, err := versionOf(evt.ID)
		if err != nil {
			return err
		}
		if r.Sick {
			sick, err := isSick(ctx, evt, version)
			if err != nil {
				return err
			}
			if sick {
				return events.Permanent(errSick)
			}
		}
		err = gormtx.Tx(ctx).Exec("INSERT INTO effects (event_id, aggregate, version) VALUES (?, ?, ?)", evt.ID, aggregate, version).Error
		if err != nil {
			return err
		}
		switch {
		case evt.ID == r.Hold && held.CompareAndSwap(false, true):
			say("held", evt.ID)
			<-goOn
		case evt.ID == r.Exit:
			time.Sleep(r.Linger)
			os.Exit(exitCode)
		case r.Exit != "":
			time.Sleep(2 * r.Linger) // so that some run beside the one that exits
		case r.Linger > 0 && rand.IntN(10) == 0:
			say("handling", evt.ID)
			time.Sleep(rand.N(r.Linger))
		}
		return nil
	}
}

// batchHandler returns a handler that has its effects in a table of its own.
func (r replica) batchHandler(table string) events.BatchHandler {
	return func(ctx context.Context, evts []events.Event) error {
		var effects []effect
		for _, evt := range evts {
			aggregate, version, err := versionOf(evt.ID)
			if err != nil {
				return err
			}
			effects = append(effects, effect{evt.ID, aggregate, version})
		}
		if err := gormtx.Tx(ctx).Table(table).Create(effects).Error; err != nil {
			return err
		}
		if rand.IntN(4) == 0 {
			say("handling", evts[0].ID)
			time.Sleep(rand.N(r.Linger))
		}
		return nil
	}
}

// watchedCursors remembers the first lease.
type watchedCursors struct {
	persistence.OutboxCursorStore
	mu    sync.Mutex
	lease persistence.Lease
}

func (c *watchedCursors) Acquire(ctx context.Context, dispatcher, owner string, duration time.Duration) (persistence.Lease, error) {
	lease, err := c.OutboxCursorStore.Acquire(ctx, dispatcher, owner, duration)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil && c.lease.Token == 0 {
		c.lease = lease
	}
	return lease, err
}

// writeStale writes, with the first lease, which somebody else has taken since,
// all that a holder can write, and tells what came of it. Each would do harm.
func (c *watchedCursors) writeStale(tx persistence.Transactor) {
	c.mu.Lock()
	lease := c.lease
	c.mu.Unlock()
	ctx := context.Background()
	at := persistence.Cursor{CreatedTime: time.Now().UTC().Add(time.Hour).Truncate(time.Microsecond), ID: "stale"}
	_, failure := c.RecordFailure(ctx, lease, persistence.Failure{Event: at, Handler: handlerName, Error: "stale"})
	for name, err := range map[string]error{
		"Save":          c.Save(ctx, lease, persistence.Progress{Cursor: at}),
		"RecordFailure": failure,
		"AddDeadLetter": tx.Atomically(ctx, func(ctx context.Context) error {
			return c.AddDeadLetter(ctx, lease, persistence.DeadLetter{
				Record:     persistence.Record{ID: at.ID, CreatedTime: at.CreatedTime, AggregateType: "a", AggregateID: "1", EventType: eventType},
				Dispatcher: dispatcherName, Handler: handlerName, Attempts: 1, LastError: "stale", State: persistence.DeadLetterDead,
			})
		}),
		"Release": c.Release(ctx, lease),
	} {
		if !errors.Is(err, persistence.ErrLeaseLost) {
			say("harm", fmt.Sprintf("%s with the stale token %d: %v", name, lease.Token, err))
		}
	}
	say("written", fmt.Sprint(lease.Token))
}
