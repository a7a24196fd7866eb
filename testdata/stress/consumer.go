package main

import (
	"context"
	"errors"
	"strconv"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/persistence"
)

// cursorReader moves a cursor as fast as it can and remembers what it saw.
type cursorReader struct {
	store    persistence.OutboxStore
	cursor   persistence.Cursor
	seen     map[string]bool
	last     map[string]int // version, by aggregate
	twice    int
	disorder int
}

func newCursorReader(store persistence.OutboxStore) *cursorReader {
	return &cursorReader{store: store, seen: map[string]bool{}, last: map[string]int{}}
}

// read takes one page and returns its length.
func (c *cursorReader) read(ctx context.Context) (int, error) {
	page, err := c.store.ReadAfter(ctx, c.cursor, 1000)
	if err != nil {
		return 0, err
	}
	for _, r := range page {
		c.cursor = r.Cursor()
		if c.seen[r.ID] {
			c.twice++
		}
		c.seen[r.ID] = true
		version, err := strconv.Atoi(string(r.Payload))
		if err != nil {
			return 0, err
		}
		if version <= c.last[r.AggregateID] {
			c.disorder++
		}
		c.last[r.AggregateID] = version
	}
	return len(page), nil
}

// effectTables are those of the handlers: one takes single events, two take batches.
var effectTables = []string{"effects", "batch_effects", "more_batch_effects"}

// newDispatcher returns a dispatcher whose handlers write an effect a delivery, each
// into a table of its own.
func newDispatcher(db *database, store persistence.OutboxStore) (*events.Dispatcher, error) {
	d := events.NewDispatcher(store, db.outbox, db.outbox, db.outbox)
	apply := func(ctx context.Context, table string, evt events.Event) error {
		aggregate, err := strconv.Atoi(evt.AggregateID)
		version, err2 := strconv.Atoi(string(evt.Payload))
		if err := errors.Join(err, err2); err != nil {
			return err
		}
		return db.exec(ctx, "INSERT INTO "+db.table(table)+" (event_id, aggregate, version) VALUES (?, ?, ?)", evt.ID, aggregate, version)
	}
	single, batches := effectTables[0], effectTables[1:]
	err := d.Subscribe(eventType, single, func(ctx context.Context, evt events.Event) error { return apply(ctx, single, evt) })
	for _, table := range batches {
		err = errors.Join(err, d.SubscribeBatch(eventType, table, func(ctx context.Context, evts []events.Event) error {
			for _, evt := range evts {
				if err := apply(ctx, table, evt); err != nil {
					return err
				}
			}
			return nil
		}))
	}
	return d, err
}
