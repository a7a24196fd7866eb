package main

import (
	"context"
	stdsql "database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	watermillsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	watermillmessage "github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
)

// watermillContender is watermill-sql, which has an offset for each topic and group
// of consumers. The handler works in the transaction of its subscriber, where the
// offset moves, too; that is its exactly-once. Subscribers of one topic wait for
// each other, so there are as many topics as handlers at once, and an aggregate's
// events are in one of them, in order.
var watermillContender = contender{
	name:    "watermill",
	servers: []string{"postgres"},
	disciplines: []discipline{
		watermillOf("dispatch", 3000, 1),
		watermillOf("batch-rows", 15_000, 100),
	},
	wakers: []waker{
		{"watermill", 300, watermillPoll, wakeWatermill(watermillPoll)},
		{"watermill-default", 40, time.Second, wakeWatermill(0)},
	},
	publisher: publishWatermill,
}

// watermillPoll is how often an idle subscriber looks for messages, when tuned.
const watermillPoll = 10 * time.Millisecond

// topics is watermill-sql as an engine.
type topics struct {
	peer
	batchSize int
	next      int // aggregate to be filled in
}

func watermillOf(figure string, eventsPerSecond, batchSize int) discipline {
	return discipline{figure: figure, name: "watermill", eventsPerSecond: eventsPerSecond, batchSize: batchSize, open: func(ctx context.Context, b *benchmark, concurrency int) (engine, error) {
		t := &topics{peer: peer{b, concurrency}, batchSize: batchSize}
		pool, err := t.pool(ctx, 1)
		if err != nil {
			return nil, err
		}
		defer pool.Close()
		s, err := subscriber(watermillsql.BeginnerFromPgx(pool), batchSize, watermillPoll)
		for i := 0; err == nil && i < concurrency; i++ {
			err = s.SubscribeInitialize(t.topic(i))
		}
		return t, err
	}}
}

func (p peer) topic(i int) string { return fmt.Sprint(p.prefix, i) }

func subscriber(db watermillsql.Beginner, batchSize int, poll time.Duration) (*watermillsql.Subscriber, error) {
	return watermillsql.NewSubscriber(db, watermillsql.SubscriberConfig{
		ConsumerGroup:    "count",
		PollInterval:     poll,
		SchemaAdapter:    watermillsql.DefaultPostgreSQLSchema{SubscribeBatchSize: batchSize},
		OffsetsAdapter:   watermillsql.DefaultPostgreSQLOffsetsAdapter{},
		InitializeSchema: true,
	}, watermill.NopLogger{})
}

// publishTx publishes a message in a transaction.
func (p peer) publishTx(tx pgx.Tx, topic string, m message) error {
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	publisher, err := watermillsql.NewPublisher(watermillsql.TxFromPgx(tx), watermillsql.PublisherConfig{SchemaAdapter: watermillsql.DefaultPostgreSQLSchema{}}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	return publisher.Publish(topic, watermillmessage.NewMessage(watermill.NewUUID(), text))
}

// fill writes what its publisher would, each message in a transaction of its own,
// since the subscriber goes by transactions. The loop runs on the server.
func (t *topics) fill(ctx context.Context, n int) error {
	text, err := json.Marshal(messageOf(0))
	if err != nil {
		return err
	}
	script := fmt.Sprintf(`DO $$ BEGIN
	FOR i IN %d..%d LOOP
		EXECUTE format('INSERT INTO %%I (uuid, payload, metadata, transaction_id) VALUES ($1, $2, ''{}'', pg_current_xact_id())', 'watermill_%s' || i %% %d %% %d)
			USING gen_random_uuid()::text, json_build_object('counter', i %% %d, 'text', repeat('x', %d));
		COMMIT;
	END LOOP;
END $$`, t.next, t.next+n-1, t.prefix, counters, t.concurrency, counters, len(text)-len(`{"counter":0,"text":""}`))
	t.next += n
	var tables []string
	for i := range t.concurrency {
		tables = append(tables, fmt.Sprintf("%q", "watermill_"+t.topic(i)))
	}
	return t.exec(ctx, "SET synchronous_commit = off", script, "ANALYZE "+strings.Join(tables, ", "))
}

// turnwiseBeginner begins a subscriber's transactions within a gate.
type turnwiseBeginner struct {
	watermillsql.Beginner
	gate *gate
}

// turnwiseTx ends with a Commit or a Rollback, one of them.
type turnwiseTx struct {
	watermillsql.Tx
	gate *gate
}

func (b turnwiseBeginner) BeginTx(ctx context.Context, options *stdsql.TxOptions) (watermillsql.Tx, error) {
	if options == nil { // it subscribes
		return b.Beginner.BeginTx(ctx, options)
	}
	if err := b.gate.enter(); err != nil {
		return nil, err
	}
	tx, err := b.Beginner.BeginTx(ctx, options)
	if err != nil {
		b.gate.leave()
		return nil, err
	}
	return turnwiseTx{tx, b.gate}, nil
}

func (t turnwiseTx) Commit() error {
	defer t.gate.leave()
	return t.Tx.Commit()
}

func (t turnwiseTx) Rollback() error {
	defer t.gate.leave()
	return t.Tx.Rollback()
}

func (t *topics) start(ctx context.Context, g *gate) (func() error, error) {
	pool, err := t.pool(ctx, t.concurrency)
	if err != nil {
		return nil, err
	}
	s, err := subscriber(turnwiseBeginner{watermillsql.BeginnerFromPgx(pool), g}, t.batchSize, watermillPoll)
	if err != nil {
		return nil, err
	}
	errs := make([]error, t.concurrency)
	var handlers sync.WaitGroup
	for i := range t.concurrency {
		messages, err := s.Subscribe(ctx, t.topic(i))
		if err != nil {
			return nil, err
		}
		handlers.Go(func() {
			for m := range messages {
				if err := g.count(1, t.handle(m)); err != nil {
					errs[i] = err
					m.Nack()
					continue
				}
				m.Ack()
			}
		})
	}
	return func() error {
		err := s.Close()
		handlers.Wait()
		pool.Close()
		return errors.Join(append(errs, err)...)
	}, nil
}

// handle changes the effect in the subscriber's transaction.
func (t *topics) handle(m *watermillmessage.Message) error {
	var content message
	if err := json.Unmarshal(m.Payload, &content); err != nil {
		return err
	}
	tx, ok := watermillsql.TxFromContext(m.Context())
	if !ok {
		return errors.New("the message has no transaction")
	}
	effect := t.effect(content.Counter)
	_, err := tx.ExecContext(m.Context(), effect.query, effect.args...)
	return err
}

func (t *topics) settled(ctx context.Context) (sum int64, err error) {
	for i := range t.concurrency {
		n, err := t.scan(ctx, fmt.Sprintf(`SELECT COUNT(*) FROM "watermill_%[1]s" JOIN "watermill_offsets_%[1]s"
			ON (transaction_id, "offset") <= (last_processed_transaction_id, offset_acked)`, t.topic(i)))
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}

// wakeWatermill starts a subscriber that looks so often; 0 is its default.
func wakeWatermill(poll time.Duration) starter {
	return func(ctx context.Context, b *benchmark, enter func()) (commit, func() error, error) {
		p := peer{b, 1}
		pool, err := p.pool(ctx, 2)
		if err != nil {
			return nil, nil, err
		}
		s, err := subscriber(watermillsql.BeginnerFromPgx(pool), 0, poll)
		if err != nil {
			return nil, nil, err
		}
		messages, err := s.Subscribe(ctx, p.topic(0))
		if err != nil {
			return nil, nil, err
		}
		go func() {
			for m := range messages {
				enter()
				m.Ack()
			}
		}()
		publish := func(ctx context.Context) error {
			return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return p.publishTx(tx, p.topic(0), messageOf(1)) })
		}
		stop := func() error {
			err := s.Close()
			pool.Close()
			return err
		}
		return stamped(publish), stop, nil
	}
}

func publishWatermill(ctx context.Context, b *benchmark, concurrency int) (publisher, error) {
	p := peer{b, concurrency}
	pool, err := p.pool(ctx, concurrency)
	if err != nil {
		return publisher{}, err
	}
	s, err := subscriber(watermillsql.BeginnerFromPgx(pool), 0, 0)
	if err != nil {
		return publisher{}, err
	}
	return publisher{func(ctx context.Context) (int, error) {
		return 1, pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			counter := anyCounter()
			if err := execute(ctx, tx, p.update(counter)); err != nil {
				return err
			}
			return p.publishTx(tx, p.topic(0), messageOf(counter))
		})
	}, b.bareInsertByHand, pool.Close}, s.SubscribeInitialize(p.topic(0))
}
