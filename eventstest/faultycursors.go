package eventstest

import (
	"context"
	"time"

	"github.com/onward-go/outbox/persistence"
)

// Cursors wraps a cursor store, with its subscriptions and dead letters.
func (f *Faults) Cursors(next persistence.OutboxCursorStore) persistence.OutboxCursorStore {
	return cursors{subscriptions{f, next}, deadLetters{f, next}, f, next}
}

// Subscriptions wraps the subscriptions alone.
func (f *Faults) Subscriptions(next persistence.SubscriptionStore) persistence.SubscriptionStore {
	return subscriptions{f, next}
}

// DeadLetters wraps the dead letters alone.
func (f *Faults) DeadLetters(next persistence.DeadLetterStore) persistence.DeadLetterStore {
	return deadLetters{f, next}
}

// Admin wraps the operator's view of the cursors.
func (f *Faults) Admin(next persistence.CursorAdmin) persistence.CursorAdmin {
	return admin{f, next}
}

type cursors struct {
	subscriptions
	deadLetters
	faults *Faults
	next   persistence.OutboxCursorStore
}

type subscriptions struct {
	faults *Faults
	next   persistence.SubscriptionStore
}

type deadLetters struct {
	faults *Faults
	next   persistence.DeadLetterStore
}

type admin struct {
	faults *Faults
	next   persistence.CursorAdmin
}

func (s cursors) Create(ctx context.Context, dispatcher string, start persistence.Cursor) error {
	return run(ctx, s.faults, "Create", func() error { return s.next.Create(ctx, dispatcher, start) })
}

func (s cursors) Load(ctx context.Context, dispatcher string) (persistence.State, error) {
	return call(ctx, s.faults, "Load", func() (persistence.State, error) { return s.next.Load(ctx, dispatcher) })
}

func (s cursors) Acquire(ctx context.Context, dispatcher, owner string, duration time.Duration) (persistence.Lease, error) {
	return call(ctx, s.faults, "Acquire", func() (persistence.Lease, error) { return s.next.Acquire(ctx, dispatcher, owner, duration) })
}

func (s cursors) Release(ctx context.Context, lease persistence.Lease) error {
	return run(ctx, s.faults, "Release", func() error { return s.next.Release(ctx, lease) })
}

func (s cursors) Save(ctx context.Context, lease persistence.Lease, progress persistence.Progress) error {
	return run(ctx, s.faults, "Save", func() error { return s.next.Save(ctx, lease, progress) })
}

func (s cursors) Counts(ctx context.Context, dispatcher string, from, to time.Time) ([]persistence.Bucket, error) {
	return call(ctx, s.faults, "Counts", func() ([]persistence.Bucket, error) { return s.next.Counts(ctx, dispatcher, from, to) })
}

func (s cursors) RecordFailure(ctx context.Context, lease persistence.Lease, failure persistence.Failure) (persistence.Attempt, error) {
	return call(ctx, s.faults, "RecordFailure", func() (persistence.Attempt, error) { return s.next.RecordFailure(ctx, lease, failure) })
}

func (s cursors) AddDeadLetter(ctx context.Context, lease persistence.Lease, letter persistence.DeadLetter) error {
	return run(ctx, s.faults, "AddDeadLetter", func() error { return s.next.AddDeadLetter(ctx, lease, letter) })
}

func (s subscriptions) Register(ctx context.Context, dispatcher string, all ...persistence.Subscription) error {
	return run(ctx, s.faults, "Register", func() error { return s.next.Register(ctx, dispatcher, all...) })
}

func (s subscriptions) RegisterAt(ctx context.Context, dispatcher string, begin persistence.Beginning, all ...persistence.Subscription) (bool, error) {
	return call(ctx, s.faults, "RegisterAt", func() (bool, error) { return s.next.RegisterAt(ctx, dispatcher, begin, all...) })
}

func (s subscriptions) Serve(ctx context.Context, lease persistence.Lease, all ...persistence.Subscription) ([]persistence.SubscriptionState, error) {
	return call(ctx, s.faults, "Serve", func() ([]persistence.SubscriptionState, error) { return s.next.Serve(ctx, lease, all...) })
}

func (s subscriptions) Prune(ctx context.Context, lease persistence.Lease, unserved time.Duration) ([]persistence.Subscription, error) {
	return call(ctx, s.faults, "Prune", func() ([]persistence.Subscription, error) { return s.next.Prune(ctx, lease, unserved) })
}

func (s subscriptions) ListSubscriptions(ctx context.Context) ([]persistence.SubscriptionState, error) {
	return call(ctx, s.faults, "ListSubscriptions", func() ([]persistence.SubscriptionState, error) { return s.next.ListSubscriptions(ctx) })
}

func (s deadLetters) ListDeadLetters(ctx context.Context, query persistence.DeadLetterQuery) ([]persistence.DeadLetter, error) {
	return call(ctx, s.faults, "ListDeadLetters", func() ([]persistence.DeadLetter, error) { return s.next.ListDeadLetters(ctx, query) })
}

func (s deadLetters) GetDeadLetter(ctx context.Context, letter persistence.Marker) (persistence.DeadLetter, error) {
	return call(ctx, s.faults, "GetDeadLetter", func() (persistence.DeadLetter, error) { return s.next.GetDeadLetter(ctx, letter) })
}

func (s deadLetters) MoveDeadLetter(ctx context.Context, move persistence.DeadLetterMove) error {
	return run(ctx, s.faults, "MoveDeadLetter", func() error { return s.next.MoveDeadLetter(ctx, move) })
}

func (s deadLetters) PurgeDeadLetters(ctx context.Context, before time.Time, limit int) (int, error) {
	return call(ctx, s.faults, "PurgeDeadLetters", func() (int, error) { return s.next.PurgeDeadLetters(ctx, before, limit) })
}

func (s admin) ListCursors(ctx context.Context) ([]persistence.State, error) {
	return call(ctx, s.faults, "ListCursors", func() ([]persistence.State, error) { return s.next.ListCursors(ctx) })
}

func (s admin) Rewind(ctx context.Context, dispatcher string, to persistence.Cursor) error {
	return run(ctx, s.faults, "Rewind", func() error { return s.next.Rewind(ctx, dispatcher, to) })
}

func (s admin) Forget(ctx context.Context, dispatcher string) error {
	return run(ctx, s.faults, "Forget", func() error { return s.next.Forget(ctx, dispatcher) })
}
