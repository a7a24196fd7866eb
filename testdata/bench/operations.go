package main

import (
	"context"
	"crypto/rand"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/gormtx"
)

// benchmark is an outbox with tables of its own, and the same tables by hand.
type benchmark struct {
	db         *gorm.DB
	pool       *pgxpool.Pool
	outbox     *gormtx.Outbox
	publisher  *events.Publisher
	dispatcher *events.Dispatcher
	prefix     string
}

func open(ctx context.Context, dsn string, concurrency int) (*benchmark, error) {
	b := &benchmark{prefix: "b" + strings.ToLower(rand.Text()[:8]) + "_"}
	var err error
	if b.db, err = gorm.Open(postgres.Open(dsn), &gorm.Config{Logger: logger.Discard, SkipDefaultTransaction: true}); err != nil {
		return nil, err
	}
	if pool, err := b.db.DB(); err == nil {
		pool.SetMaxIdleConns(concurrency + 1)
	}
	if b.pool, err = pgxpool.New(ctx, dsn); err != nil {
		return nil, err
	}
	b.outbox = gormtx.New(b.db, gormtx.WithTablePrefix(b.prefix))
	if err := b.outbox.Migrate(ctx); err != nil {
		return nil, err
	}
	for _, statement := range []string{
		"CREATE TABLE {prefix}counter (id int PRIMARY KEY, n bigint NOT NULL)",
		"INSERT INTO {prefix}counter VALUES (1, 0)",
		"CREATE TABLE {prefix}marker (created_time timestamptz, event_id text, handler text, PRIMARY KEY (created_time, event_id, handler))",
		// Partitioned like the outbox, so that the bare insert pays for that, too.
		"CREATE TABLE {prefix}bare (LIKE {prefix}outbox INCLUDING CONSTRAINTS INCLUDING INDEXES) PARTITION BY RANGE (created_time)",
		"ALTER TABLE {prefix}bare ALTER created_time SET DEFAULT clock_timestamp()",
		"CREATE TABLE {prefix}bare_pmax PARTITION OF {prefix}bare DEFAULT",
	} {
		if err := b.db.WithContext(ctx).Exec(b.expand(statement)).Error; err != nil {
			return nil, err
		}
	}
	b.publisher = events.NewPublisher(b.outbox)
	b.dispatcher = events.NewDispatcher(b.outbox, b.outbox, b.outbox, b.outbox)
	return b, b.dispatcher.Subscribe(event.Type, "count", func(ctx context.Context, _ events.Event) error {
		return gormtx.Tx(ctx).Exec(b.expand("UPDATE {prefix}counter SET n = n + 1 WHERE id = 1")).Error
	})
}

func (b *benchmark) expand(query string) string {
	return strings.ReplaceAll(query, "{prefix}", b.prefix)
}

func (b *benchmark) close() {
	b.pool.Close()
	if pool, err := b.db.DB(); err == nil {
		_ = pool.Close() // the process ends
	}
}

var event = events.Event{Type: "bench.Happened", AggregateType: "Counter", AggregateID: "1", Payload: []byte(strings.Repeat("x", 300))}

// publish is a transaction that publishes one event.
func (b *benchmark) publish(ctx context.Context) (int, error) {
	return 1, b.outbox.Atomically(ctx, func(ctx context.Context) error { return b.publisher.Publish(ctx, event) })
}

// bareInsert is the same transaction through GORM, with an INSERT and no fence.
func (b *benchmark) bareInsert(ctx context.Context) (int, error) {
	return 1, b.db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		return tx.Exec(b.expand("INSERT INTO {prefix}bare (id, account_id, aggregate_type, aggregate_id, event_type, payload) VALUES (?, ?, ?, ?, ?, ?)"),
			events.NewID(), "", event.AggregateType, event.AggregateID, event.Type, event.Payload).Error
	})
}

// dispatch delivers a batch.
func (b *benchmark) dispatch(ctx context.Context) (int, error) {
	return b.dispatcher.RunOnce(ctx, 100)
}

// fill publishes enough for dispatch.
func (b *benchmark) fill(ctx context.Context, n int) error {
	return b.outbox.Atomically(ctx, func(ctx context.Context) error {
		return b.publisher.Publish(ctx, slices.Repeat([]events.Event{event}, n)...)
	})
}

// handWritten is the limit: the handler's transaction, marker and all, without
// any library but the driver.
func (b *benchmark) handWritten(ctx context.Context) (int, error) {
	return 1, pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, b.expand("INSERT INTO {prefix}marker VALUES (clock_timestamp(), $1, 'count') ON CONFLICT DO NOTHING"), events.NewID()); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, b.expand("UPDATE {prefix}counter SET n = n + 1 WHERE id = 1"))
		return err
	})
}
