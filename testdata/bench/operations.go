package main

import (
	"context"
	"crypto/rand"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"strings"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/gormtx"
)

const (
	// counters is the number of aggregates that producers change. There are
	// enough for them seldom to meet.
	counters = 1000
)

// benchmark is an outbox with tables of its own, and the same tables by hand.
type benchmark struct {
	family
	db        *gorm.DB
	hand      hand
	outbox    *gormtx.Outbox
	publisher *events.Publisher
	prefix    string
	dsn       string
}

func open(ctx context.Context, f family, dsn string, concurrency int) (*benchmark, error) {
	b := &benchmark{family: f, prefix: "b" + strings.ToLower(rand.Text()[:8]) + "_"}
	dsn, err := f.database(ctx, dsn)
	if err != nil {
		return nil, err
	}
	b.dsn = dsn
	if b.db, err = gorm.Open(f.dialector(dsn), &gorm.Config{Logger: logger.Discard, SkipDefaultTransaction: true}); err != nil {
		return nil, err
	}
	if pool, err := b.db.DB(); err == nil {
		pool.SetMaxIdleConns(concurrency + 3)
	}
	if b.hand, err = f.driver(ctx, dsn, concurrency); err != nil {
		return nil, err
	}
	b.outbox = gormtx.New(b.db, gormtx.WithTablePrefix(b.prefix))
	if err := b.outbox.Migrate(ctx); err != nil {
		return nil, err
	}
	for _, statement := range f.tables {
		if err := b.db.WithContext(ctx).Exec(b.expand(statement)).Error; err != nil {
			return nil, err
		}
	}
	for id := range counters {
		for _, table := range []string{"counter", "effect"} {
			if err := b.db.WithContext(ctx).Exec(b.expand("INSERT INTO {prefix}"+table+" VALUES (?, 0)"), id).Error; err != nil {
				return nil, err
			}
		}
	}
	b.publisher = events.NewPublisher(b.outbox)
	return b, nil
}

func (b *benchmark) expand(query string) string {
	return strings.ReplaceAll(query, "{prefix}", b.prefix)
}

func (b *benchmark) close() {
	b.hand.close()
	if pool, err := b.db.DB(); err == nil {
		_ = pool.Close() // the process ends
	}
}

var event = events.Event{Type: "bench.Happened", AggregateType: "Counter", AggregateID: "1", Payload: []byte(strings.Repeat("x", 300))}

// change is the application's part of a transaction.
func (b *benchmark) change(tx *gorm.DB, counter int) error {
	return tx.Exec(b.expand("UPDATE {prefix}counter SET n = n + 1 WHERE id = ?"), counter).Error
}

// publishThrough is a transaction that changes an aggregate and publishes one
// event.
func (b *benchmark) publishThrough(f face, s stores) operation {
	publisher, change := events.NewPublisher(s), b.expand(b.family.update)
	return func(ctx context.Context) (int, error) {
		return 1, s.Atomically(ctx, func(ctx context.Context) error {
			if err := f.exec(ctx, change, anyCounter()); err != nil {
				return err
			}
			return publisher.Publish(ctx, event)
		})
	}
}

func anyCounter() int { return mathrand.IntN(counters) }

// bareInsertByHand is the same transaction with nothing but the driver.
func (b *benchmark) bareInsertByHand(ctx context.Context) (int, error) {
	return 1, b.hand.transaction(ctx, b.update(anyCounter()), b.insert())
}

// update is the change by hand.
func (b *benchmark) update(counter int) statement {
	return statement{b.expand(b.family.update), []any{counter}}
}

// insert is the INSERT of a new event.
func (b *benchmark) insert() statement {
	return statement{b.expand(b.family.bareInsert), []any{events.NewID(), "", event.AggregateType, event.AggregateID, event.Type, event.Payload}}
}

// fill publishes enough for dispatch, and waits until the safe mark has passed
// all of it, since the first lap of MySQL's fence is not what is measured.
func (b *benchmark) fill(ctx context.Context, n int) error {
	for range (n + 999) / 1000 {
		evts := slices.Repeat([]events.Event{event}, 1000)
		for i := range evts {
			evts[i].AggregateID = fmt.Sprint(i % counters) // so that lanes meet at no counter
		}
		err := b.outbox.Atomically(ctx, func(ctx context.Context) error { return b.publisher.Publish(ctx, evts...) })
		if err != nil {
			return fmt.Errorf("fill the outbox: %w", err)
		}
	}
	filled, err := b.outbox.SafeMark(ctx)
	for mark := filled; err == nil && mark.Time.Before(filled.Now); {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
		mark, err = b.outbox.SafeMark(ctx)
	}
	return err
}

// mark is the marker of an event.
func (b *benchmark) mark(id string) statement {
	return statement{b.expand(b.marker), []any{id}}
}

// handWritten is the limit: the handler's transaction, marker and all, without
// any library but the driver.
func (b *benchmark) handWritten(ctx context.Context) (int, error) {
	return 1, b.hand.transaction(ctx, b.mark(events.NewID()), b.update(anyCounter()))
}
