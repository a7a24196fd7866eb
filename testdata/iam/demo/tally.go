package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/onward-go/outbox/testdata/iam/app"
	"github.com/onward-go/outbox/testdata/iam/domain"
)

// progress is how far a run is, as the tables say.
type progress struct {
	Published int // rows of the outbox
	Delivered int // markers
	Revoked   int // API keys
}

func (p progress) waiting() int { return p.Published - p.Delivered }

// tally is the result of a run, as the tables say.
type tally struct {
	progress
	Suspended  int // users
	RolledBack int // users who are active still
	Lost       int
	Twice      int // keys that were revoked more than once
}

// counts are the queries of the tally. Names in braces are tables, those with
// an @ are constants of the example.
var counts = struct {
	published, delivered, revoked, suspended, active, twice string
	lostKeys, lostDeliveries, lostEvents                    string
	unsaved                                                 string
}{
	published: "SELECT count(*) FROM {outbox}",
	delivered: "SELECT count(*) FROM {outbox_idempotency} WHERE handler = @handler",
	revoked:   "SELECT count(*) FROM {api_keys} WHERE revoked",
	suspended: "SELECT count(*) FROM {users} WHERE status = @suspended",
	active:    "SELECT count(*) FROM {users} WHERE status = @active",
	twice:     "SELECT count(*) FROM {api_keys} WHERE revocations > 1",

	// Suspended users who have a key that works.
	lostKeys: `SELECT count(*) FROM {users} u WHERE u.status = @suspended
		AND EXISTS (SELECT 1 FROM {api_keys} k WHERE k.user_id = u.id AND NOT k.revoked)`,
	// Events that were never handled.
	lostDeliveries: `SELECT count(*) FROM {outbox} o WHERE NOT EXISTS (SELECT 1 FROM {outbox_idempotency} m
		WHERE m.created_time = o.created_time AND m.event_id = o.id AND m.handler = @handler)`,
	// Suspended users of whom no event tells.
	lostEvents: `SELECT count(*) FROM {users} WHERE status = @suspended
		AND id NOT IN (SELECT aggregate_id FROM {outbox} WHERE event_type = @event)`,

	// Deliveries that the saved cursor does not know of.
	unsaved: `SELECT count(*) FROM {outbox_cursors} c, {outbox_idempotency} m
		WHERE (m.created_time, m.event_id) > (c.created_time, c.event_id)`,
}

// count answers several counts by one statement, so of one moment.
func (d *database) count(ctx context.Context, queries ...string) ([]int, error) {
	statement := strings.NewReplacer(
		"{", d.place.prefix(), "}", "",
		"@handler", "'"+app.RevokeKeysHandler+"'",
		"@event", "'"+app.UserSuspended+"'",
		"@suspended", "'"+string(domain.Suspended)+"'",
		"@active", "'"+string(domain.Active)+"'",
	).Replace("SELECT (" + strings.Join(queries, "), (") + ")")
	numbers := make([]int, len(queries))
	targets := make([]any, len(queries))
	for i := range numbers {
		targets[i] = &numbers[i]
	}
	if err := d.WithContext(ctx).Raw(statement).Row().Scan(targets...); err != nil {
		return nil, fmt.Errorf("count: %w", err)
	}
	return numbers, nil
}

func (d *database) progress(ctx context.Context) (progress, error) {
	n, err := d.count(ctx, counts.published, counts.delivered, counts.revoked)
	if err != nil {
		return progress{}, err
	}
	return progress{n[0], n[1], n[2]}, nil
}

func (d *database) tally(ctx context.Context) (tally, error) {
	n, err := d.count(ctx, counts.published, counts.delivered, counts.revoked, counts.suspended, counts.active,
		counts.twice, counts.lostKeys, counts.lostDeliveries, counts.lostEvents)
	if err != nil {
		return tally{}, err
	}
	return tally{
		progress:   progress{n[0], n[1], n[2]},
		Suspended:  n[3],
		RolledBack: n[4],
		Twice:      n[5],
		Lost:       n[6] + n[7] + n[8],
	}, nil
}

// check returns what is wrong with the tally of a run that has come to its end.
func (t tally) check(o options) error {
	want := o.toSuspend()
	var errs []error
	for _, c := range []struct {
		what      string
		got, want int
	}{
		{"suspended users", t.Suspended, want},
		{"events published", t.Published, want},
		{"rolled back", t.RolledBack, o.users - want},
		{"delivered", t.Delivered, want},
		{"keys revoked", t.Revoked, keysPerUser * want},
		{"lost", t.Lost, 0},
		{"applied twice", t.Twice, 0},
	} {
		if c.got != c.want {
			errs = append(errs, fmt.Errorf("%s: %d, it should be %d", c.what, c.got, c.want))
		}
	}
	return errors.Join(errs...)
}
