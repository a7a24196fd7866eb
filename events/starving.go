package events

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/onward-go/outbox/persistence"
)

// A replica may hold the lease without a handler that a replica which stands by has: in
// a rolling deploy, or where two services share a dispatcher's name. The handler's events
// wait for the other replica, which the holder keeps from working. So both say so.

// starving is what a replica that stands by has seen of its handlers that are behind.
type starving struct {
	behind map[persistence.Subscription]persistence.Cursor
	since  time.Time // that they stand where they are
	told   bool
}

// standBy looks whether handlers that are here make progress under the holder of the
// lease, and warns once if they have made none for as long as the lease lasts.
func (s *starving) standBy(ctx context.Context, d *Dispatcher, held error) {
	here := map[persistence.Subscription]persistence.Cursor{}
	keys := keysOf(d.subscriptions())
	for _, sub := range d.registered.behind {
		if slices.Contains(keys, sub.Subscription) {
			here[sub.Subscription] = *sub.Behind
		}
	}
	var stuck []persistence.Subscription
	for key, at := range here {
		if before, ok := s.behind[key]; ok && before == at {
			stuck = append(stuck, key)
		}
	}
	s.behind = here
	switch {
	case len(stuck) == 0:
		s.since, s.told = time.Now(), false
	case !s.told && time.Since(s.since) >= d.lease:
		s.told = true
		slices.SortFunc(stuck, compareSubscriptions)
		d.log.LogAttrs(ctx, slog.LevelWarn, "outbox: handlers here are left behind by the holder of the lease", slog.String("dispatcher", d.name),
			slog.String("subscriptions", names(stuck)), slog.Any("error", held))
	}
}

// lookForAbsent does what tellOfAbsent says, as often as an audit.
func (t *term) lookForAbsent(ctx context.Context) {
	if time.Since(t.looked) < auditEvery {
		return
	}
	t.looked = time.Now()
	if err := t.tellOfAbsent(ctx); err != nil && ctx.Err() == nil {
		t.d.log.LogAttrs(ctx, slog.LevelWarn, "outbox: upkeep failed", slog.String("dispatcher", t.d.name), slog.Any("error", err))
	}
}

// tellOfAbsent warns, whenever they change, of handlers that are registered with the
// dispatcher and not here, while this replica holds the lease.
func (t *term) tellOfAbsent(ctx context.Context) error {
	all, err := t.absent(ctx)
	if err != nil {
		return err
	}
	keys := make([]persistence.Subscription, len(all))
	for i, s := range all {
		keys[i] = s.Subscription
	}
	slices.SortFunc(keys, compareSubscriptions)
	if absent := names(keys); absent != t.d.absent {
		t.d.absent = absent
		if absent != "" {
			t.d.log.LogAttrs(ctx, slog.LevelWarn, "outbox: handlers are registered that the holder of the lease lacks", slog.String("dispatcher", t.d.name),
				slog.String("subscriptions", absent))
		}
	}
	return nil
}

func compareSubscriptions(a, b persistence.Subscription) int {
	return cmp.Or(cmp.Compare(a.EventType, b.EventType), cmp.Compare(a.Handler, b.Handler))
}

// names lists subscriptions for people to read.
func names(subscriptions []persistence.Subscription) string {
	text := make([]string, len(subscriptions))
	for i, s := range subscriptions {
		text[i] = fmt.Sprintf("%q of %q", s.Handler, s.EventType)
	}
	return strings.Join(text, ", ")
}

// A status looks through so many events for one that is owed to a handler, in pages.
const (
	starvingPages = 10
	starvingPage  = 500
)

// starvingSince returns the first event that has been committed, is not before the
// subscription's position, and has not been applied by its handler. If there are very
// many events to look through, it is the last one that it has looked at.
func (d *Dispatcher) starvingSince(ctx context.Context, sub persistence.SubscriptionState) (first persistence.Cursor, found bool, err error) {
	at := *sub.Behind
	for range starvingPages {
		page, err := d.store.ReadWindow(ctx, persistence.WindowRead{After: at, Frontier: at, Limit: starvingPage, WithoutPayload: true})
		records := page.Records
		if err != nil || len(records) == 0 {
			return persistence.Cursor{}, false, err
		}
		var markers []persistence.Marker
		for _, r := range records {
			if r.EventType == sub.EventType && r.Cursor().Compare(sub.Start) > 0 {
				markers = append(markers, persistence.Marker{Event: r.Cursor(), Handler: sub.Handler})
			}
		}
		if len(markers) > 0 {
			applied, err := d.idempotency.Applied(ctx, markers...)
			if err != nil {
				return persistence.Cursor{}, false, err
			}
			if i := slices.Index(applied, false); i >= 0 {
				return markers[i].Event, true, nil
			}
		}
		at = records[len(records)-1].Cursor()
	}
	return at, true, nil
}

// countStarving counts in the lag what waits for handlers that are here, while another
// replica, which lacks them, works and moves the cursor on.
func (d *Dispatcher) countStarving(ctx context.Context, status *Status) error {
	keys := keysOf(d.subscriptions())
	for _, sub := range status.Behind {
		if !slices.Contains(keys, sub.Subscription) {
			continue
		}
		first, found, err := d.starvingSince(ctx, sub)
		if err != nil {
			return err
		}
		if found {
			status.Lag = max(status.Lag, first.Age(status.Now))
		}
	}
	return nil
}
