package main

import (
	"context"
	"strings"

	"github.com/onward-go/outbox/persistence"
)

// control is a way to do it wrong. The zero value is the library.
type control struct {
	// read returns the rows after the cursor; nil: the library's.
	read func(ctx context.Context, db *database, after persistence.Cursor, limit int) ([]persistence.Record, error)
	// append writes one record; nil: the library's.
	append func(ctx context.Context, db *database, r persistence.Record) error
}

func (d *database) expand(query string) string {
	return strings.ReplaceAll(query, "{prefix}", d.prefix)
}

// controlStore is the library's store, with one thing done wrong.
type controlStore struct {
	persistence.OutboxStore
	db      *database
	control control
}

func (c controlStore) Append(ctx context.Context, records ...persistence.Record) error {
	if c.control.append == nil {
		return c.OutboxStore.Append(ctx, records...)
	}
	for _, r := range records {
		if err := c.control.append(ctx, c.db, r); err != nil {
			return err
		}
	}
	return nil
}

func (c controlStore) ReadAfter(ctx context.Context, after persistence.Cursor, limit int) ([]persistence.Record, error) {
	if c.control.read == nil {
		return c.OutboxStore.ReadAfter(ctx, after, limit)
	}
	return c.control.read(ctx, c.db, after, limit)
}
