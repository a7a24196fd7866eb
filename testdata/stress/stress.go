package main

import (
	"context"
	"crypto/rand"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/onward-go/outbox/persistence"
)

// Stress makes one run in tables of its own.
func Stress(ctx context.Context, config Config) (Result, error) {
	config.Prefix = "s" + strings.ToLower(rand.Text()[:8]) + "_"
	db, err := open(config, 8)
	if err != nil {
		return Result{}, err
	}
	defer db.close()
	control, err := db.family.control(config.Control)
	if err != nil {
		return Result{}, err
	}
	if err := db.create(ctx, config.Aggregates); err != nil {
		return Result{}, err
	}
	reader := newCursorReader(controlStore{db.outbox, db, control})
	var store persistence.OutboxStore = db.outbox
	if config.Control == twoWindows {
		store = twoStatements{db.outbox}
	}

	group, ctx := errgroup.WithContext(ctx)
	wait, err := startProducers(ctx, config)
	if err != nil {
		return Result{}, err
	}
	var done atomic.Bool // all events are committed
	group.Go(func() error {
		defer done.Store(true)
		return wait()
	})
	if config.Control != twoWindows {
		group.Go(func() error { return untilDrained(&done, func() (int, error) { return reader.read(ctx) }) })
	}
	late := 0
	if config.Control == "" || config.Control == twoWindows { // the others are about the reader, which has to be fast
		group.Go(func() (err error) {
			late, err = dispatch(ctx, db, store, &done)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return Result{}, err
	}
	result, err := tally(ctx, config, db, reader)
	result.Late = late
	return result, err
}

// untilDrained makes passes until, after the last commit, the reader has
// nothing left to read. A safe mark may follow the clock in steps, so some
// passes in a row have to find nothing; a mark that takes longer shows as lost.
func untilDrained(done *atomic.Bool, pass func() (int, error)) error {
	const emptyPasses, between = 50, 20 * time.Millisecond
	for empty := 0; empty < emptyPasses; {
		last := done.Load()
		n, err := pass()
		switch {
		case err != nil:
			return err
		case n > 0 || !last:
			empty = 0
		default:
			empty++
			time.Sleep(between)
		}
	}
	return nil
}
