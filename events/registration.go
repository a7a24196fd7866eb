package events

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/onward-go/outbox/persistence"
)

// registration is what a dispatcher knows of its subscriptions in the database. It
// belongs to whoever has entered the dispatcher.
type registration struct {
	at     time.Time // when it said last that they are served
	any    bool      // the dispatcher had subscriptions, whoever's, when it was last looked at
	starts map[persistence.Subscription]persistence.Cursor
	behind []persistence.SubscriptionState // those of the dispatcher that were behind
}

// register tells which handlers are here, whoever holds the lease, and creates
// the dispatcher if it does not exist. It looks each time, by one query, since
// an operator may have forgotten the dispatcher, or a backup, or a replica that
// lagged, has taken the place of the database.
func (d *Dispatcher) register(ctx context.Context) error {
	keys := keysOf(d.subscriptions())
	missing, err := d.missing(ctx, keys)
	if err != nil {
		return err
	}
	if len(missing) == 0 && !d.registered.at.IsZero() && time.Since(d.registered.at) < d.upkeepEvery() {
		return nil
	}
	now := time.Now()
	if len(missing) > 0 || d.registered.at.IsZero() {
		if err := d.introduce(ctx, missing); err != nil {
			return err
		}
	}
	if err := d.cursors.Register(ctx, d.name, keys...); err != nil {
		return err
	}
	if len(missing) > 0 { // where they start now
		if _, err := d.missing(ctx, keys); err != nil {
			return err
		}
	}
	d.registered.at = now
	return nil
}

// missing returns those of the subscriptions that are not registered, and notes where
// the others start.
func (d *Dispatcher) missing(ctx context.Context, keys []persistence.Subscription) ([]persistence.Subscription, error) {
	all, err := d.cursors.ListSubscriptions(ctx)
	if err != nil {
		return nil, err
	}
	found := map[persistence.Subscription]persistence.Cursor{}
	d.registered.behind = nil
	for _, s := range all {
		if s.Dispatcher == d.name {
			found[s.Subscription] = s.Start
			if s.Behind != nil {
				d.registered.behind = append(d.registered.behind, s)
			}
		}
	}
	d.registered.any = len(found) > 0
	var missing []persistence.Subscription
	for _, key := range keys {
		start, ok := found[key]
		if !ok {
			missing = append(missing, key)
			continue
		}
		if d.registered.starts == nil {
			d.registered.starts = map[persistence.Subscription]persistence.Cursor{}
		}
		d.registered.starts[key] = start
	}
	return missing, nil
}

// introduce registers subscriptions that are not there.
//
//   - The first ones of a dispatcher, and those that come before anybody has taken
//     its lease, start where it does, which is left to Register: a first deployment
//     gets what was published before.
//   - One that this process had registered starts where it did: what has been
//     published since is for it.
//   - Any other is new, and gets what is committed from now on.
func (d *Dispatcher) introduce(ctx context.Context, missing []persistence.Subscription) error {
	state, err := d.cursors.Load(ctx, d.name)
	if errors.Is(err, persistence.ErrNotFound) {
		if state, err = d.create(ctx); err != nil {
			return err
		}
	}
	if err != nil {
		return err
	}
	begun := state.Lease.Token > 0
	var fresh []persistence.Subscription
	for _, key := range missing {
		start, known := d.registered.starts[key]
		if !known || !begun {
			fresh = append(fresh, key)
			continue
		}
		if _, err := d.cursors.RegisterAt(ctx, d.name, persistence.Beginning{At: start}, key); err != nil {
			return err
		}
		d.log.LogAttrs(ctx, slog.LevelWarn, "outbox: subscription was gone, registered anew", slog.String("dispatcher", d.name),
			slog.String("event_type", key.EventType), slog.String("handler", key.Handler), slog.String("start", start.String()))
	}
	if len(fresh) == 0 || (!begun || !d.registered.any) && !d.startNow {
		return nil
	}
	mark, err := d.firstMark(ctx)
	if err != nil {
		return fmt.Errorf("where new handlers start: %w", err)
	}
	begin := persistence.Beginning{At: persistence.Cursor{CreatedTime: mark}, Settle: true}
	left, err := d.cursors.RegisterAt(ctx, d.name, begin, fresh...)
	if left {
		d.log.LogAttrs(ctx, slog.LevelWarn, "outbox: new handlers get some events from before they were registered", slog.String("dispatcher", d.name),
			slog.Any("subscriptions", fresh), slog.String("start", begin.At.String()), slog.Int("settled", persistence.MaxSettledAtStart))
	}
	return err
}

// create makes the dispatcher.
func (d *Dispatcher) create(ctx context.Context) (persistence.State, error) {
	start, err := d.start(ctx)
	if err != nil {
		return persistence.State{}, fmt.Errorf("where to start: %w", err)
	}
	if err := d.cursors.Create(ctx, d.name, start); err != nil {
		return persistence.State{}, err
	}
	return d.cursors.Load(ctx, d.name)
}

// markPatienceAtStart is how long a registration waits for a safe mark: as long as
// producers usually keep transactions open.
const markPatienceAtStart = 5 * time.Second

// firstMark returns a safe mark. Where a store learns it by watching, there may be
// none yet.
func (d *Dispatcher) firstMark(ctx context.Context) (time.Time, error) {
	for deadline := time.Now().Add(markPatienceAtStart); ; {
		mark, err := d.store.SafeMark(ctx)
		switch {
		case err != nil:
			return time.Time{}, err
		case mark.Missing == "":
			return mark.Time, nil
		case time.Now().After(deadline):
			return time.Time{}, fmt.Errorf("there is no safe mark after %s: %s", markPatienceAtStart, mark.Missing)
		}
		if !sleep(ctx, ctx, markPause) {
			return time.Time{}, context.Cause(ctx)
		}
	}
}
