package persistence

import (
	"context"
	"fmt"
	"time"
)

// Subscription is a handler's subscription to a type of event. Handler names
// are global to the outbox, since they are the name of the marker: one pair
// belongs to one dispatcher.
type Subscription struct {
	EventType string `json:"event_type"`
	Handler   string `json:"handler"`
}

// SubscriptionState is what is remembered of a subscription.
type SubscriptionState struct {
	Subscription
	// Dispatcher is the one that it belongs to.
	Dispatcher string `json:"dispatcher"`
	// Start is where the subscription begins: nothing at or before it is
	// delivered to the handler.
	Start Cursor `json:"start"`
	// Behind is where the handler has been left behind: the dispatcher's cursor
	// may have passed events after it that the handler has not been applied to.
	// Nil: the handler has come as far as the cursor.
	Behind *Cursor `json:"behind,omitempty"`
}

// LeaveBehind is what becomes of the state when the dispatcher is at a position
// and may go on without the handler. Nothing before its start is left behind.
// Like the other two, it is for authors of stores, and reports whether the state
// has changed.
func (s *SubscriptionState) LeaveBehind(at Cursor) bool {
	if s.Behind != nil {
		return false
	}
	if at.Compare(s.Start) < 0 {
		at = s.Start
	}
	s.Behind = &at
	return true
}

// CatchUp is what becomes of the state when the handler has come to a position,
// and the dispatcher's cursor is at another.
func (s *SubscriptionState) CatchUp(to, cursor Cursor) bool {
	switch {
	case s.Behind == nil:
		return false
	case to.Compare(cursor) >= 0:
		s.Behind = nil
		return true
	case to.Compare(*s.Behind) > 0:
		s.Behind = &to
		return true
	}
	return false
}

// Rewind is what becomes of the state when the dispatcher's cursor is put to a
// position.
func (s *SubscriptionState) Rewind(to Cursor) (changed bool) {
	if s.Start.Compare(to) > 0 {
		s.Start = to
		changed = true
	}
	if s.Behind != nil && s.Behind.Compare(to) >= 0 {
		s.Behind = nil
		changed = true
	}
	return changed
}

// MaxSettledAtStart bounds [Beginning].Settle.
const MaxSettledAtStart = 10_000

// Beginning is where a subscription begins that is new to the outbox.
type Beginning struct {
	// At is the position. The subscription starts, and is behind, there.
	At Cursor
	// Settle is for a handler that is to get nothing that has been published
	// before. At is a safe mark ([SafeMark]) then, or any position that no event
	// appears before any more; if the dispatcher's cursor is further, the
	// subscription starts there. Events after it that are visible already get
	// markers of the handler: what is committed later is new, and what can be seen
	// now is old. The store does so among the first [MaxSettledAtStart] events
	// after the start, and leaves what lies beyond to be delivered.
	Settle bool
}

// Start returns where a subscription starts while the dispatcher's cursor is at a
// position, for authors of stores.
func (b Beginning) Start(cursor Cursor) Cursor {
	if b.Settle && cursor.Compare(b.At) > 0 {
		return cursor
	}
	return b.At
}

// SubscriptionStore remembers which handlers a dispatcher has, and how far each
// of them has come.
//
// In a rolling deploy one replica holds the lease while another one already has
// a handler that the holder does not know, and the holder's cursor runs past
// that handler's events. So each replica registers what it has, and whoever
// takes the lease learns what it has to read again, for which of its handlers.
//
// Its methods work outside of any transaction that ctx carries.
type SubscriptionStore interface {
	// Register adds subscriptions of an existing dispatcher. A new one starts,
	// and is behind, at the dispatcher's cursor. One that exists is served from
	// now on. It returns [ErrNotFound] without the dispatcher, and [ErrInvalid],
	// with nothing written, for a bad name, or one that belongs to another
	// dispatcher.
	Register(ctx context.Context, dispatcher string, subscriptions ...Subscription) error

	// RegisterAt is Register for subscriptions that begin elsewhere than at the
	// dispatcher's cursor. Those that exist stay where they are. A bad position is
	// [ErrInvalid], with nothing written. It reports whether [Beginning].Settle has
	// left something, see there.
	RegisterAt(ctx context.Context, dispatcher string, begin Beginning, subscriptions ...Subscription) (left bool, err error)

	// Serve says which of the dispatcher's subscriptions the lease's owner
	// serves, and returns their states, in the order of the arguments. All
	// others are behind from the cursor on, unless they are behind already. It
	// returns [ErrNotFound] for one that is not registered with the dispatcher.
	Serve(ctx context.Context, lease Lease, subscriptions ...Subscription) ([]SubscriptionState, error)

	// Prune forgets what is of no more use: subscriptions of the dispatcher
	// that nobody has registered or served for the duration, which it returns,
	// and counts and failures of events that lie behind the cursor by more than
	// twice [AuditWindow].
	Prune(ctx context.Context, lease Lease, unserved time.Duration) ([]Subscription, error)

	// ListSubscriptions returns the subscriptions of all dispatchers, by event
	// type, then handler.
	ListSubscriptions(ctx context.Context) ([]SubscriptionState, error)
}

// CheckSubscription returns an [ErrInvalid] error unless the subscription names
// an event type of 1 to 255 bytes and a handler of 1 to 128.
func CheckSubscription(s Subscription) error {
	if problem := CheckText(s.EventType, MaxNameBytes); problem != "" {
		return fmt.Errorf("%w: subscription of handler %q: event type %s", ErrInvalid, s.Handler, problem)
	}
	if problem := CheckText(s.Handler, MaxHandlerBytes); problem != "" {
		return fmt.Errorf("%w: subscription to %q: handler name %s", ErrInvalid, s.EventType, problem)
	}
	return nil
}
