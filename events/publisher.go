package events

import (
	"context"
	"errors"
	"fmt"

	"github.com/onward-go/outbox/persistence"
)

// Publisher records events in the transaction of the change that caused them.
// It is safe for concurrent use.
type Publisher struct {
	store   persistence.OutboxStore
	notify  func()
	invalid error
}

// PublisherOption configures a [Publisher].
type PublisherOption func(*Publisher)

// WithNotify has notify called after the commit of each transaction that has
// published, on the goroutine that commits; with [Dispatcher.Wake] a dispatcher
// of the same process goes to work at once. It must not block.
//
// The transaction is that of the publisher's store, also where the context carries
// those of other databases; a wrapper of the store has to pass on
// [persistence.CommitObserver] for that.
//
// The commit of a transaction that was begun elsewhere is not seen: call notify
// yourself after it, or leave it to polling.
func WithNotify(notify func()) PublisherOption {
	return func(p *Publisher) { p.notify = notify }
}

// NewPublisher returns a publisher to the store. What is wrong with the arguments is
// returned by Publish, as [persistence.ErrInvalid].
func NewPublisher(store persistence.OutboxStore, opts ...PublisherOption) *Publisher {
	p := &Publisher{store: store}
	if store == nil {
		p.invalid = invalid("the publisher has no outbox store")
	}
	for i, opt := range opts {
		if opt == nil {
			p.invalid = errors.Join(p.invalid, invalid("option %d of the publisher is nil", i))
			continue
		}
		opt(p)
	}
	return p
}

// Publish appends events to the outbox in the transaction that ctx carries:
// they are committed if and only if the transaction is. It is one statement,
// whatever the number of events, and another one before it if any has a
// DedupKey. The events of one aggregate are delivered in
// the order of the arguments.
//
// Write the aggregate before you publish: producers of one aggregate then wait
// for each other at its row, and their events are stamped in the order of
// their commits.
//
// Errors, with nothing written: [persistence.ErrNoTransaction] if ctx carries
// no live transaction of the store's database, [persistence.ErrInvalid] if any
// event is refused, [persistence.ErrDuplicate] if the DedupKey of any is taken,
// [persistence.ErrSchema] if the tables do not fit. After any other error roll
// the transaction back.
//
// A dedup key is reserved in the transaction, too: it is taken if that commits,
// and free if it rolls back. Whoever publishes with a key that an open
// transaction has reserved waits for its end.
func (p *Publisher) Publish(ctx context.Context, evts ...Event) error {
	if p.invalid != nil {
		return fmt.Errorf("publish: %w", p.invalid)
	}
	records := make([]persistence.Record, len(evts))
	reservations := make([]persistence.Reservation, len(evts))
	keyed := false
	for i, e := range evts {
		if e.ID == "" {
			e.ID = NewID()
		}
		if e.AccountID == "" {
			e.AccountID = AccountID(ctx)
		}
		records[i] = e.record()
		reservations[i] = persistence.Reservation{Record: records[i], Key: e.DedupKey}
		keyed = keyed || e.DedupKey != ""
	}
	if keyed {
		if err := p.reserve(ctx, reservations); err != nil {
			return fmt.Errorf("publish: %w", err)
		}
	}
	if err := p.store.Append(ctx, records...); err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	if p.notify != nil && len(evts) > 0 {
		p.notifyAfterCommit(ctx)
	}
	return nil
}

// notifyAfterCommit has notify called after the commit of the store's transaction.
// The events are written by now, so that no error may say otherwise: a commit that
// cannot be observed is left to polling.
func (p *Publisher) notifyAfterCommit(ctx context.Context) {
	notify := func(context.Context) { p.notify() }
	if observer, ok := p.store.(persistence.CommitObserver); ok {
		_ = observer.AfterCommit(ctx, notify)
	} else {
		_ = persistence.AfterCommit(ctx, notify)
	}
}

// reserve takes the dedup keys of events, if the store keeps any.
func (p *Publisher) reserve(ctx context.Context, reservations []persistence.Reservation) error {
	dedup, ok := p.store.(persistence.DedupStore)
	if !ok {
		return fmt.Errorf("%w: an event has a dedup key, and the outbox store %T keeps none: it is no persistence.DedupStore", persistence.ErrInvalid, p.store)
	}
	return dedup.ReserveKeys(ctx, reservations...)
}
