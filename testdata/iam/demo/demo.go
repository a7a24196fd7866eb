package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/onward-go/outbox/testdata/iam/app"
)

const (
	keysPerUser = 2
	// How often to look at the tables, and how often when it is time to kill.
	lookInterval = 20 * time.Millisecond
	aimInterval  = time.Millisecond
)

var errHalt = errors.New("nothing has moved")

// demo is one run.
type demo struct {
	options
	db         *database
	app        *app.App
	screen     *screen
	dispatcher *process
	delivered  int  // when killInPass looked last
	killed     bool // at least once, with work left
}

func (d *demo) run(ctx context.Context) error {
	d.screen.print("%d users with %d API keys each, %d producers, %s", d.users, keysPerUser, d.producers, d.db.place.server())
	if err := d.register(ctx); err != nil {
		return err
	}
	// What has come to a halt is worth counting.
	halt := d.perform(ctx)
	if halt != nil && !errors.Is(halt, errHalt) {
		return halt
	}
	t, err := d.db.tally(ctx)
	if err != nil {
		return errors.Join(halt, err)
	}
	d.report(t)
	return errors.Join(halt, d.verdict(t))
}

// verdict returns what is wrong with a run.
func (d *demo) verdict(t tally) error {
	err := t.check(d.options)
	if err != nil {
		err = fmt.Errorf("the tally is wrong: %w", err)
	}
	if !d.killed {
		err = errors.Join(err, errors.New("the kill has missed: the dispatcher had no work left"))
	}
	return err
}

// perform runs producers and dispatcher until everything is delivered.
func (d *demo) perform(ctx context.Context) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	produced := make(chan error, 1)
	go func() {
		produced <- d.produce(ctx)
		close(produced)
	}()
	defer func() {
		cancel()
		// Closed if watch has got the producers' error already.
		if producerErr := <-produced; err == nil {
			err = producerErr
		}
	}()
	if d.dispatcher, err = startProcess(d.db.place); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.dispatcher.stop()) }()
	return d.watch(ctx, produced)
}

// watch looks at the tables until the producers have ended and all that they
// committed is delivered. It kills the dispatcher half-way.
func (d *demo) watch(ctx context.Context, produced <-chan error) error {
	look, aim := time.NewTicker(lookInterval), time.NewTicker(aimInterval)
	defer look.Stop()
	defer aim.Stop()
	var aiming <-chan time.Time // nil: not yet, or not any more
	var last progress
	moved, ending, hit := time.Now(), false, false
	for {
		select {
		case err := <-produced:
			if err != nil {
				return err
			}
			produced, ending = nil, true
			continue
		case <-d.dispatcher.ended:
			return d.dispatcher.died()
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-aiming:
			var err error
			if hit, err = d.killInPass(ctx, ending); err != nil {
				return err
			}
			if hit {
				aiming = nil
			}
			continue
		case <-look.C:
		}
		now, err := d.db.progress(ctx)
		switch {
		case err != nil:
			return err
		case ending && now.waiting() == 0:
			return nil
		case now != last:
			last, moved = now, time.Now()
		case time.Since(moved) > d.patience:
			return fmt.Errorf("%w for %s: %d events are waiting", errHalt, d.patience, now.waiting())
		}
		d.show(now)
		if aiming == nil && !hit && now.Delivered >= d.toSuspend()/2 {
			d.delivered, aiming = now.Delivered, aim.C
		}
	}
}

func (d *demo) show(p progress) {
	want := d.toSuspend()
	d.screen.progress("published %d/%d  delivered %d/%d  keys revoked %d/%d", p.Published, want, p.Delivered, want, p.Revoked, keysPerUser*want)
}

func (d *demo) report(t tally) {
	d.screen.print("")
	for _, line := range []struct {
		what  string
		count int
	}{
		{"suspended users", t.Suspended},
		{"events published", t.Published},
		{"rolled back", t.RolledBack},
		{"delivered", t.Delivered},
		{"keys revoked", t.Revoked},
		{"lost", t.Lost},
		{"applied twice", t.Twice},
	} {
		d.screen.print("%-18s%8d", line.what, line.count)
	}
	d.screen.print("demo server=%s published=%d delivered=%d lost=%d twice=%d", d.db.place.server(), t.Published, t.Delivered, t.Lost, t.Twice)
}
