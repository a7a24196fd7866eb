package model

import (
	"context"
	"errors"
	"time"

	"github.com/onward-go/outbox/persistence"
)

// gatedCursors also checks that no write of a lease that was lost succeeds.
type gatedCursors struct {
	persistence.OutboxCursorStore
	r *replica
}

// fenced makes a write under a lease.
func (c gatedCursors) fenced(ctx context.Context, lease persistence.Lease, point string, write func(context.Context) error) error {
	if err := c.r.enter(point); err != nil {
		return err
	}
	state, err := c.OutboxCursorStore.Load(context.WithoutCancel(ctx), lease.Dispatcher)
	if err != nil {
		return err
	}
	err = write(ctx)
	lost, refused := state.Lease.Token != lease.Token, errors.Is(err, persistence.ErrLeaseLost)
	switch {
	case lost && err == nil:
		c.r.m.violated("%s: %s succeeds under token %d, though the lease has token %d", c.r, point, lease.Token, state.Lease.Token)
	case lost:
		c.r.fencedOff = c.r.fencedOff || refused
	case refused && ctx.Err() == nil:
		c.r.m.violated("%s: %s is refused, though the lease is good: %v", c.r, point, err)
	}
	return err
}

func (c gatedCursors) Acquire(ctx context.Context, dispatcher, owner string, duration time.Duration) (persistence.Lease, error) {
	if err := c.r.enter("acquire"); err != nil {
		return persistence.Lease{}, err
	}
	c.r.owner = owner
	lease, err := c.OutboxCursorStore.Acquire(ctx, dispatcher, owner, duration)
	if lease.Unclean {
		c.r.m.interrupted++
	}
	return lease, err
}

func (c gatedCursors) Release(ctx context.Context, lease persistence.Lease) error {
	return c.fenced(ctx, lease, "release", func(ctx context.Context) error {
		err := c.OutboxCursorStore.Release(ctx, lease)
		c.r.keeps = c.r.keeps || ctx.Err() != nil
		return err
	})
}

func (c gatedCursors) Save(ctx context.Context, lease persistence.Lease, progress persistence.Progress) error {
	return c.fenced(ctx, lease, "save", func(ctx context.Context) error {
		return c.OutboxCursorStore.Save(ctx, lease, progress)
	})
}

func (c gatedCursors) RecordFailure(ctx context.Context, lease persistence.Lease, failure persistence.Failure) (attempt persistence.Attempt, err error) {
	err = c.fenced(ctx, lease, "fail "+failure.Event.ID+"/"+failure.Handler, func(ctx context.Context) error {
		attempt, err = c.OutboxCursorStore.RecordFailure(ctx, lease, failure)
		return err
	})
	return attempt, err
}

// AddDeadLetter is called in a transaction.
func (c gatedCursors) AddDeadLetter(ctx context.Context, lease persistence.Lease, letter persistence.DeadLetter) error {
	if c.r.m.OneWriter {
		return c.OutboxCursorStore.AddDeadLetter(ctx, lease, letter)
	}
	return c.fenced(ctx, lease, "bury "+letter.Record.ID+"/"+letter.Handler, func(ctx context.Context) error {
		return c.OutboxCursorStore.AddDeadLetter(ctx, lease, letter)
	})
}

func (c gatedCursors) Serve(ctx context.Context, lease persistence.Lease, subscriptions ...persistence.Subscription) (states []persistence.SubscriptionState, err error) {
	err = c.fenced(ctx, lease, "serve", func(ctx context.Context) error {
		states, err = c.OutboxCursorStore.Serve(ctx, lease, subscriptions...)
		return err
	})
	return states, err
}

func (c gatedCursors) Prune(ctx context.Context, lease persistence.Lease, unserved time.Duration) (pruned []persistence.Subscription, err error) {
	err = c.fenced(ctx, lease, "prune", func(ctx context.Context) error {
		pruned, err = c.OutboxCursorStore.Prune(ctx, lease, unserved)
		return err
	})
	return pruned, err
}

func (c gatedCursors) Register(ctx context.Context, dispatcher string, subscriptions ...persistence.Subscription) error {
	if err := c.r.enter("register"); err != nil {
		return err
	}
	return c.OutboxCursorStore.Register(ctx, dispatcher, subscriptions...)
}

func (c gatedCursors) Create(ctx context.Context, dispatcher string, start persistence.Cursor) error {
	if err := c.r.enter("create"); err != nil {
		return err
	}
	return c.OutboxCursorStore.Create(ctx, dispatcher, start)
}

func (c gatedCursors) Load(ctx context.Context, dispatcher string) (persistence.State, error) {
	if err := c.r.enter("load"); err != nil {
		return persistence.State{}, err
	}
	return c.OutboxCursorStore.Load(ctx, dispatcher)
}

func (c gatedCursors) Counts(ctx context.Context, dispatcher string, from, to time.Time) ([]persistence.Bucket, error) {
	if err := c.r.enter("counts"); err != nil {
		return nil, err
	}
	return c.OutboxCursorStore.Counts(ctx, dispatcher, from, to)
}
