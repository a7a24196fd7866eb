package events

import (
	"context"
	"fmt"

	"github.com/onward-go/outbox/persistence"
)

// Publisher records events in the transaction of the change that caused them.
// It is safe for concurrent use.
type Publisher struct {
	store persistence.OutboxStore
}

// NewPublisher returns a publisher to the store.
func NewPublisher(store persistence.OutboxStore) *Publisher {
	return &Publisher{store: store}
}

// Publish appends events to the outbox in the transaction that ctx carries:
// they are committed if and only if the transaction is. It is one statement,
// whatever the number of events. The events of one aggregate are delivered in
// the order of the arguments.
//
// Write the aggregate before you publish: producers of one aggregate then wait
// for each other at its row, and their events are stamped in the order of
// their commits.
//
// Errors, with nothing written: [persistence.ErrNoTransaction] if ctx carries
// no live transaction of the store's database, [persistence.ErrInvalid] if any
// event is refused, [persistence.ErrSchema] if the tables do not fit. After any
// other error roll the transaction back.
func (p *Publisher) Publish(ctx context.Context, evts ...Event) error {
	if p.store == nil {
		return fmt.Errorf("publish: %w: the publisher has no outbox store", persistence.ErrInvalid)
	}
	records := make([]persistence.Record, len(evts))
	for i, e := range evts {
		if e.ID == "" {
			e.ID = NewID()
		}
		if e.AccountID == "" {
			e.AccountID = AccountID(ctx)
		}
		records[i] = e.record()
	}
	if err := p.store.Append(ctx, records...); err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	return nil
}
