package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/onward-go/outbox/events"
)

// riverContender is River, a queue of jobs: a job an event, in no order. With
// JobCompleteTx a job is completed in its handler's transaction, which makes its
// effect exactly-once. Without, River completes many at once, later: a job runs at
// least once, and only a marker of the handler's own makes its effect exactly-once.
var riverContender = contender{
	name:    "river",
	servers: []string{"postgres"},
	disciplines: []discipline{
		riverOf("dispatch", "river", 5000, 1, completeTx),
		riverOf("dispatch", "river-ahead", 5000, riverAhead, completeTx),
		riverOf("batch-rows", "river", 10_000, riverAhead, markTx),
	},
	wakers: []waker{
		{"river", 300, 20 * time.Millisecond, wakeRiver(riverTuned)},
		{"river-default", 100, river.FetchCooldownDefault, wakeRiver(river.Config{})},
	},
	publisher: publishRiver,
}

// riverTuned fetches as often as River lets us.
var riverTuned = river.Config{FetchCooldown: river.FetchCooldownMin, FetchPollInterval: river.FetchCooldownMin}

// riverAhead is how many workers there are for each connection of the handlers.
// River fetches jobs for all that are free, so more of them make larger fetches.
const riverAhead = 32

type job struct{ message }

func (job) Kind() string { return "count" }

type worker struct {
	river.WorkerDefaults[job]
	work func(context.Context, *river.Job[job]) error
}

func (w *worker) Work(ctx context.Context, j *river.Job[job]) error { return w.work(ctx, j) }

// riverQueue is River as an engine.
type riverQueue struct {
	peer
	workers  int // for each connection
	handle   func(q *riverQueue, ctx context.Context, tx pgx.Tx, j *river.Job[job]) error
	producer *river.Client[pgx.Tx]
}

func riverOf(figure, name string, eventsPerSecond, workers int, handle func(*riverQueue, context.Context, pgx.Tx, *river.Job[job]) error) discipline {
	return discipline{figure: figure, name: name, eventsPerSecond: eventsPerSecond, batchSize: 1, open: func(ctx context.Context, b *benchmark, concurrency int) (engine, error) {
		q := &riverQueue{peer: peer{b, concurrency}, workers: workers, handle: handle}
		pool, err := q.pool(ctx, 2)
		if err != nil {
			return nil, err
		}
		if err := q.migrate(ctx, pool); err != nil {
			return nil, err
		}
		q.producer, err = q.client(pool, river.Config{})
		return q, err
	}}
}

// schema is where River's tables are.
func (p peer) schema() string { return p.prefix + "river" }

func (p peer) migrate(ctx context.Context, pool *pgxpool.Pool) error {
	if _, err := pool.Exec(ctx, "CREATE SCHEMA "+p.schema()); err != nil {
		return err
	}
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Schema: p.schema(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	return err
}

func (p peer) client(pool *pgxpool.Pool, config river.Config) (*river.Client[pgx.Tx], error) {
	config.Schema, config.Logger = p.schema(), slog.New(slog.DiscardHandler)
	return river.NewClient(riverpgxv5.New(pool), &config)
}

// working returns a client with so many workers.
func (p peer) working(pool *pgxpool.Pool, config river.Config, workers int, work func(context.Context, *river.Job[job]) error) (*river.Client[pgx.Tx], error) {
	config.Workers = river.NewWorkers()
	config.Queues = map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: workers}}
	if err := river.AddWorkerSafely(config.Workers, &worker{work: work}); err != nil {
		return nil, err
	}
	return p.client(pool, config)
}

func (q *riverQueue) fill(ctx context.Context, n int) error {
	for start := 0; start < n; start += 1000 {
		var jobs []river.InsertManyParams
		for i := start; i < min(n, start+1000); i++ {
			jobs = append(jobs, river.InsertManyParams{Args: job{messageOf(i % counters)}})
		}
		if _, err := q.producer.InsertManyFast(ctx, jobs); err != nil {
			return fmt.Errorf("fill the queue: %w", err)
		}
	}
	return q.exec(ctx, "ANALYZE "+q.schema()+".river_job")
}

func (q *riverQueue) start(ctx context.Context, g *gate) (func() error, error) {
	own, err := q.pool(ctx, 5) // for its queries, beside the handlers'
	if err != nil {
		return nil, err
	}
	handlers, err := q.pool(ctx, q.concurrency)
	if err != nil {
		return nil, err
	}
	client, err := q.working(own, riverTuned, q.workers*q.concurrency, func(ctx context.Context, j *river.Job[job]) error {
		connection, err := handlers.Acquire(ctx)
		if err != nil {
			return err
		}
		defer connection.Release()
		return g.within(func() error {
			return g.count(1, pgx.BeginFunc(ctx, connection, func(tx pgx.Tx) error { return q.handle(q, ctx, tx, j) }))
		})
	})
	if err != nil {
		return nil, err
	}
	ctx = context.WithoutCancel(ctx) // it writes what it has completed when it is stopped
	return func() error {
		err := client.Stop(ctx)
		handlers.Close()
		own.Close()
		return err
	}, client.Start(ctx)
}

func (q *riverQueue) settled(ctx context.Context) (int64, error) {
	return q.scan(ctx, "SELECT COUNT(*) FROM "+q.schema()+".river_job WHERE state = 'completed'")
}

// completeTx completes the job in the handler's transaction.
func completeTx(q *riverQueue, ctx context.Context, tx pgx.Tx, j *river.Job[job]) error {
	if err := execute(ctx, tx, q.effect(j.Args.Counter)); err != nil {
		return err
	}
	_, err := river.JobCompleteTx[*riverpgxv5.Driver](ctx, tx, j)
	return err
}

// markTx leaves the job to be completed later, and writes the marker of the limit,
// by which a second try of the job does nothing.
func markTx(q *riverQueue, ctx context.Context, tx pgx.Tx, j *river.Job[job]) error {
	marked, err := tx.Exec(ctx, q.expand("INSERT INTO {prefix}marker VALUES ($1, $2, 'count') ON CONFLICT DO NOTHING"), j.CreatedAt, fmt.Sprint(j.ID))
	if err != nil || marked.RowsAffected() == 0 {
		return err
	}
	return execute(ctx, tx, q.effect(j.Args.Counter))
}

// wakeRiver starts a client that hears of new jobs by LISTEN.
func wakeRiver(config river.Config) starter {
	return func(ctx context.Context, b *benchmark, enter func()) (commit, func() error, error) {
		p := peer{b, 1}
		pool, err := p.pool(ctx, 5)
		if err != nil {
			return nil, nil, err
		}
		if err := p.migrate(ctx, pool); err != nil {
			return nil, nil, err
		}
		client, err := p.working(pool, config, events.DefaultConcurrency, func(context.Context, *river.Job[job]) error {
			enter()
			return nil
		})
		if err != nil {
			return nil, nil, err
		}
		publish := func(ctx context.Context) error {
			return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
				_, err := client.InsertTx(ctx, tx, job{messageOf(1)}, nil)
				return err
			})
		}
		stop := func() error {
			err := client.Stop(context.WithoutCancel(ctx))
			pool.Close()
			return err
		}
		return stamped(publish), stop, client.Start(context.WithoutCancel(ctx))
	}
}

func publishRiver(ctx context.Context, b *benchmark, concurrency int) (publisher, error) {
	p := peer{b, concurrency}
	pool, err := p.pool(ctx, concurrency)
	if err != nil {
		return publisher{}, err
	}
	err = p.migrate(ctx, pool)
	client, err2 := p.client(pool, river.Config{})
	return publisher{func(ctx context.Context) (int, error) {
		return 1, pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			counter := anyCounter()
			if err := execute(ctx, tx, p.update(counter)); err != nil {
				return err
			}
			_, err := client.InsertTx(ctx, tx, job{messageOf(counter)}, nil)
			return err
		})
	}, b.bareInsertByHand, pool.Close}, errors.Join(err, err2)
}
