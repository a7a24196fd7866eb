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

// newDispatcher returns a dispatcher whose handler writes an effect a delivery.
func newDispatcher(db *database, store persistence.OutboxStore) (*events.Dispatcher, error) {
	d := events.NewDispatcher(store, db.outbox, db.outbox, db.outbox)
	err := d.Subscribe(eventType, "effect", func(ctx context.Context, evt events.Event) error {
		aggregate, err := strconv.Atoi(evt.AggregateID)
		version, err2 := strconv.Atoi(string(evt.Payload))
		if err := errors.Join(err, err2); err != nil {
			return err
		}
		return db.exec(ctx, "INSERT INTO "+db.table("effects")+" (event_id, aggregate, version) VALUES (?, ?, ?)", evt.ID, aggregate, version)
	})
	return d, err
}
