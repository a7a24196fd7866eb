package eventstest

import (
	"context"
	"fmt"
	"math"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/persistence"
)

const (
	passSize = 1000
	all      = math.MaxInt32
)

// Drain has the dispatcher make passes until one finds nothing to do, with what
// handlers publish meanwhile. It returns the first error of a pass, that of a
// handler, too; call it again to let the handler try again. On a database it
// goes on as long as another producer's transaction is open: bound it with ctx.
func Drain(ctx context.Context, dispatcher *events.Dispatcher) error {
	for {
		settled, err := dispatcher.RunOnce(ctx, passSize)
		if err != nil {
			return fmt.Errorf("drain: %w", err)
		}
		if settled == 0 {
			return nil
		}
	}
}

// Published returns the events that the store holds, committed and in order.
func Published(ctx context.Context, store persistence.OutboxStore) ([]events.Event, error) {
	page, err := store.ReadWindow(ctx, persistence.WindowRead{Limit: all})
	if err != nil {
		return nil, fmt.Errorf("read what was published: %w", err)
	}
	evts := make([]events.Event, len(page.Records))
	for i, r := range page.Records {
		evts[i] = events.Event{
			ID: r.ID, Type: r.EventType, AccountID: r.AccountID, AggregateType: r.AggregateType, AggregateID: r.AggregateID,
			Payload: r.Payload, CreatedTime: r.CreatedTime,
		}
	}
	return evts, nil
}
