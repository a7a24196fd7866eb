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

// fenced checks a write under a lease.
func fenced[T any](ctx context.Context, c gatedCursors, l persistence.Lease, point string, write func() (T, error)) func() (T, error) {
	return func() (result T, err error) {
		state, err := c.OutboxCursorStore.Load(context.WithoutCancel(ctx), l.Dispatcher)
		if err != nil {
			return result, err
		}
		result, err = write()
		lost, refused := state.Lease.Token != l.Token, errors.Is(err, persistence.ErrLeaseLost)
		switch {
		case !c.r.granted[l.Token]:
			c.r.m.violated("%s: %s under token %d, which it was never given", c.r, point, l.Token)
		case lost && err == nil:
			c.r.m.violated("%s: %s succeeds under token %d, though the lease has token %d", c.r, point, l.Token, state.Lease.Token)
		case lost:
			c.r.fencedOff = c.r.fencedOff || refused
		case refused && ctx.Err() == nil:
			c.r.m.violated("%s: %s is refused, though the lease is good: %v", c.r, point, err)
		}
		return result, err
	}
}

// held makes a write under a lease, when it is let through.
func held[T any](ctx context.Context, c gatedCursors, l persistence.Lease, point string, write func() (T, error)) (T, error) {
	return through(c.r.gate, point, fenced(ctx, c, l, point, write))
}

func (c gatedCursors) Acquire(ctx context.Context, dispatcher, owner string, duration time.Duration) (persistence.Lease, error) {
	c.r.owner = owner
	l, err := through(c.r.gate, "acquire", func() (persistence.Lease, error) {
		return c.OutboxCursorStore.Acquire(ctx, dispatcher, owner, duration)
	})
	if err == nil {
		c.r.token, c.r.granted[l.Token] = l.Token, true
	}
	if l.Unclean {
		c.r.m.interrupted++
	}
	c.r.keeps = c.r.keeps || ctx.Err() != nil || errors.Is(err, errFault) // it gives up what it cannot renew
	return l, err
}

func (c gatedCursors) Release(ctx context.Context, l persistence.Lease) error {
	_, err := held(ctx, c, l, "release", nothing(func() error { return c.OutboxCursorStore.Release(ctx, l) }))
	c.r.keeps = c.r.keeps || ctx.Err() != nil || errors.Is(err, errFault)
	return err
}

func (c gatedCursors) Save(ctx context.Context, l persistence.Lease, progress persistence.Progress) error {
	_, err := held(ctx, c, l, "save", nothing(func() error { return c.OutboxCursorStore.Save(ctx, l, progress) }))
	return err
}

func (c gatedCursors) RecordFailure(ctx context.Context, l persistence.Lease, failure persistence.Failure) (persistence.Attempt, error) {
	return held(ctx, c, l, "fail "+name(failure.Event.ID, failure.Handler), func() (persistence.Attempt, error) {
		return c.OutboxCursorStore.RecordFailure(ctx, l, failure)
	})
}

func (c gatedCursors) AddDeadLetter(ctx context.Context, l persistence.Lease, letter persistence.DeadLetter) error {
	point := "bury " + name(letter.Record.ID, letter.Handler)
	_, err := inTransaction(ctx, c.r, point, fenced(ctx, c, l, point, nothing(func() error {
		return c.OutboxCursorStore.AddDeadLetter(ctx, l, letter)
	})))
	return err
}

// ListDeadLetters does not stop: it would be everywhere.
func (c gatedCursors) ListDeadLetters(ctx context.Context, query persistence.DeadLetterQuery) ([]persistence.DeadLetter, error) {
	if c.r.crashed() {
		return nil, errCrashed
	}
	return c.OutboxCursorStore.ListDeadLetters(ctx, query)
}

func (c gatedCursors) GetDeadLetter(ctx context.Context, letter persistence.Marker) (persistence.DeadLetter, error) {
	return through(c.r.gate, "get "+name(letter.Event.ID, letter.Handler), func() (persistence.DeadLetter, error) {
		return c.OutboxCursorStore.GetDeadLetter(ctx, letter)
	})
}

func (c gatedCursors) MoveDeadLetter(ctx context.Context, move persistence.DeadLetterMove) error {
	point := string(move.To) + " " + name(move.Letter.Event.ID, move.Letter.Handler)
	_, err := inTransaction(ctx, c.r, point, nothing(func() error {
		// A replica that crashes does not wait for a racing twin any longer.
		ctx, cancel := c.r.alive(ctx)
		defer cancel()
		return c.OutboxCursorStore.MoveDeadLetter(ctx, move)
	}))
	return err
}

func (c gatedCursors) Serve(ctx context.Context, l persistence.Lease, subscriptions ...persistence.Subscription) ([]persistence.SubscriptionState, error) {
	return held(ctx, c, l, "serve", func() ([]persistence.SubscriptionState, error) {
		return c.OutboxCursorStore.Serve(ctx, l, subscriptions...)
	})
}

func (c gatedCursors) Prune(ctx context.Context, l persistence.Lease, unserved time.Duration) ([]persistence.Subscription, error) {
	return held(ctx, c, l, "prune", func() ([]persistence.Subscription, error) {
		return c.OutboxCursorStore.Prune(ctx, l, unserved)
	})
}

func (c gatedCursors) Register(ctx context.Context, dispatcher string, subscriptions ...persistence.Subscription) error {
	_, err := through(c.r.gate, "register", nothing(func() error {
		return c.OutboxCursorStore.Register(ctx, dispatcher, subscriptions...)
	}))
	return err
}

func (c gatedCursors) RegisterAt(ctx context.Context, dispatcher string, begin persistence.Beginning, subscriptions ...persistence.Subscription) (bool, error) {
	return through(c.r.gate, "register", func() (bool, error) {
		return c.OutboxCursorStore.RegisterAt(ctx, dispatcher, begin, subscriptions...)
	})
}

func (c gatedCursors) Create(ctx context.Context, dispatcher string, start persistence.Cursor) error {
	_, err := through(c.r.gate, "create", nothing(func() error { return c.OutboxCursorStore.Create(ctx, dispatcher, start) }))
	return err
}

func (c gatedCursors) Load(ctx context.Context, dispatcher string) (persistence.State, error) {
	return through(c.r.gate, "load", func() (persistence.State, error) { return c.OutboxCursorStore.Load(ctx, dispatcher) })
}

func (c gatedCursors) Counts(ctx context.Context, dispatcher string, from, to time.Time) ([]persistence.Bucket, error) {
	return through(c.r.gate, "counts", func() ([]persistence.Bucket, error) {
		return c.OutboxCursorStore.Counts(ctx, dispatcher, from, to)
	})
}

func (c gatedCursors) ListSubscriptions(ctx context.Context) ([]persistence.SubscriptionState, error) {
	return through(c.r.gate, "list", func() ([]persistence.SubscriptionState, error) { return c.OutboxCursorStore.ListSubscriptions(ctx) })
}
