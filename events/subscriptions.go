package events

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/onward-go/outbox/persistence"
)

// upkeepEvery is how often a replica says that its handlers are there, and what
// is of no more use is forgotten, at least.
const upkeepEvery = time.Hour

// A replica says so several times before its handlers are forgotten.
const refreshes = 4

func (d *Dispatcher) upkeepEvery() time.Duration { return min(upkeepEvery, d.forgetAfter/refreshes) }

// checkExpiry returns why a replica could not keep its handlers registered, or nil.
func (d *Dispatcher) checkExpiry() error {
	if shortest := min(d.lease, DefaultSubscriptionExpiry); d.forgetAfter < shortest {
		return invalid("subscription expiry is %s, it must be at least the lease, %s", d.forgetAfter, shortest)
	}
	return nil
}

// subscriptions returns all of them, by event type, then in the order in which
// they were made.
func (d *Dispatcher) subscriptions() []subscription {
	d.mu.Lock()
	defer d.mu.Unlock()
	var all []subscription
	for _, eventType := range slices.Sorted(maps.Keys(d.handlers)) {
		all = append(all, d.handlers[eventType]...)
	}
	return all
}

func keysOf(subscriptions []subscription) []persistence.Subscription {
	keys := make([]persistence.Subscription, len(subscriptions))
	for i, s := range subscriptions {
		keys[i] = persistence.Subscription{EventType: s.eventType, Handler: s.name}
	}
	return keys
}

// upkeep says, now and then, that the handlers are there, and forgets what is of
// no more use. It can wait, so its errors show in the log only.
func (t *term) upkeep(ctx context.Context) {
	d := t.d
	if time.Since(d.pruned) < d.upkeepEvery() {
		return
	}
	d.pruned = time.Now()
	_, err := d.cursors.Serve(ctx, t.lease, keysOf(d.subscriptions())...)
	var forgotten []persistence.Subscription
	if err == nil {
		forgotten, err = d.cursors.Prune(ctx, t.lease, d.forgetAfter)
	}
	for _, s := range forgotten {
		d.log.LogAttrs(ctx, slog.LevelWarn, "outbox: subscription forgotten", slog.String("dispatcher", d.name),
			slog.String("event_type", s.EventType), slog.String("handler", s.Handler), slog.Duration("unserved", d.forgetAfter))
	}
	if err != nil && ctx.Err() == nil {
		t.check(err)
		if errors.Is(err, persistence.ErrNotFound) { // they are to be registered anew
			t.lose(fmt.Errorf("dispatcher %q, token %d: %w: %w", d.name, t.lease.Token, persistence.ErrLeaseLost, err))
		}
		d.log.LogAttrs(ctx, slog.LevelWarn, "outbox: upkeep failed", slog.String("dispatcher", d.name), slog.Any("error", err))
	}
}

// absent are subscriptions of the dispatcher that this replica does not have.
type absent []persistence.SubscriptionState

func (t *term) absent(ctx context.Context) (absent, error) {
	all, err := t.d.cursors.ListSubscriptions(ctx)
	return slices.DeleteFunc(all, func(s persistence.SubscriptionState) bool {
		return s.Dispatcher != t.d.name || slices.ContainsFunc(t.handlers[s.EventType], func(h *served) bool { return h.name == s.Handler })
	}), err
}

// markers returns the markers of a record behind the cursor for those of them
// to which it is owed, and which will not read it again.
func (a absent) markers(r persistence.Record) (markers []persistence.Marker) {
	c := r.Cursor()
	for _, s := range a {
		if s.EventType == r.EventType && c.Compare(s.Start) > 0 && (s.Behind == nil || c.Compare(*s.Behind) <= 0) {
			markers = append(markers, persistence.Marker{Event: c, Handler: s.Handler})
		}
	}
	return markers
}
