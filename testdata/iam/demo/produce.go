package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
)

// errOnPurpose rolls a transaction back.
var errOnPurpose = errors.New("rolled back on purpose")

func userID(number int) string { return fmt.Sprintf("user-%06d", number) }

// staysActive says whose transaction is rolled back: one user in ten.
func staysActive(number int) bool { return number%10 == 7 }

// toSuspend returns how many users end up suspended.
func (o options) toSuspend() int {
	n := 0
	for number := range o.users {
		if !staysActive(number) {
			n++
		}
	}
	return n
}

// register creates the users with two API keys each, in one transaction.
func (d *demo) register(ctx context.Context) error {
	return d.db.outbox.Atomically(ctx, func(ctx context.Context) error {
		for number := range d.users {
			id := userID(number)
			if err := d.app.Register(ctx, id, id+"-key-1", id+"-key-2"); err != nil {
				return err
			}
		}
		return nil
	})
}

// produce suspends every user, several at a time.
func (d *demo) produce(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	numbers := make(chan int)
	group.Go(func() error {
		defer close(numbers)
		wait, stop := d.pace()
		defer stop()
		for number := range d.users {
			select {
			case <-wait:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			select {
			case numbers <- number:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		return nil
	})
	for range d.producers {
		group.Go(func() error {
			for number := range numbers {
				if err := d.suspend(ctx, number); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// pace returns a channel that yields as often as a user is to be suspended.
func (o options) pace() (wait <-chan time.Time, stop func()) {
	if o.rate == 0 {
		always := make(chan time.Time)
		close(always)
		return always, func() {}
	}
	ticker := time.NewTicker(time.Second / time.Duration(o.rate))
	return ticker.C, ticker.Stop
}

func (d *demo) suspend(ctx context.Context, number int) error {
	if !staysActive(number) {
		return d.app.Suspend(ctx, userID(number))
	}
	// Suspend succeeds, inside of a transaction that does not: its event goes
	// with the rest.
	err := d.db.outbox.Atomically(ctx, func(ctx context.Context) error {
		if err := d.app.Suspend(ctx, userID(number)); err != nil {
			return err
		}
		return errOnPurpose
	})
	if errors.Is(err, errOnPurpose) {
		return nil
	}
	return err
}
