package memstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/onward-go/outbox/persistence"
)

var (
	_ persistence.Transactor        = (*Store)(nil)
	_ persistence.Chainer           = (*Store)(nil)
	_ persistence.CommitObserver    = (*Store)(nil)
	_ persistence.OutboxStore       = (*Store)(nil)
	_ persistence.OutboxCursorStore = (*Store)(nil)
	_ persistence.CursorAdmin       = (*Store)(nil)
	_ persistence.IdempotencyStore  = (*Store)(nil)
	_ persistence.DeadLetterStore   = (*Store)(nil)
	_ persistence.OutboxRetention   = (*Store)(nil)
	_ persistence.DedupStore        = (*Store)(nil)
	_ persistence.FaultJudge        = (*Store)(nil)
	_ persistence.OutboxInspector   = (*Store)(nil)
	_ persistence.StatusReader      = (*Store)(nil)
	_ persistence.Validator         = (*Store)(nil)
)

// ErrDeadlock ends a transaction that would wait for one that waits for it.
// It is a [persistence.ErrTransient].
var ErrDeadlock = fmt.Errorf("memstore: deadlock: %w", persistence.ErrTransient)

// Store is an outbox, its sidecar and a transactor. It is safe for concurrent
// use.
type Store struct {
	maxPayload int
	invalid    error

	mu            sync.Mutex
	freed         chan struct{}        // closed, and made anew, when rows are unlocked
	rows          []persistence.Record // committed, in the order of their stamps
	lastStamp     int64                // of the last committed row, in microseconds
	sidecars      map[string]*sidecar  // by dispatcher
	tokens        map[string]int64     // the highest of dispatchers that have been forgotten
	subscriptions map[persistence.Subscription]*subscription
	markers       *Table[persistence.Marker, struct{}]
	letters       *Table[persistence.Marker, persistence.DeadLetter]
	keys          *Table[dedupKey, time.Time] // when each was reserved
}

// Option configures a [Store].
type Option func(*Store)

// WithMaxPayload sets the greatest payload of an event, in bytes. The default
// is 16 MiB. A limit below 1 makes every Append fail with
// [persistence.ErrInvalid].
func WithMaxPayload(bytes int) Option {
	return func(s *Store) {
		s.maxPayload = bytes
		if bytes < 1 {
			s.invalid = fmt.Errorf("memstore: %w: WithMaxPayload(%d), it must be at least 1", persistence.ErrInvalid, bytes)
		}
	}
}

// New returns an empty store.
func New(opts ...Option) *Store {
	s := &Store{
		maxPayload:    persistence.DefaultMaxPayload,
		freed:         make(chan struct{}),
		sidecars:      map[string]*sidecar{},
		tokens:        map[string]int64{},
		subscriptions: map[persistence.Subscription]*subscription{},
	}
	s.markers = NewTable[persistence.Marker, struct{}](s)
	s.letters = NewTable[persistence.Marker, persistence.DeadLetter](s)
	s.keys = NewTable[dedupKey, time.Time](s)
	for i, opt := range opts {
		if opt == nil {
			s.invalid = fmt.Errorf("memstore: %w: option %d is nil", persistence.ErrInvalid, i)
			continue
		}
		opt(s)
	}
	return s
}

// Atomically implements [persistence.Transactor].
func (s *Store) Atomically(ctx context.Context, fn func(ctx context.Context) error) error {
	return persistence.Atomically(ctx, s, s.begin, fn)
}

// AfterCommit implements [persistence.CommitObserver].
func (s *Store) AfterCommit(ctx context.Context, fn func(ctx context.Context)) error {
	return persistence.AfterCommitOf(ctx, s, fn)
}

// Chain implements [persistence.Chainer].
func (s *Store) Chain(of persistence.Transactor) persistence.Chain {
	if of != persistence.Transactor(s) {
		return nil
	}
	return persistence.NewChain(s, s.begin)
}

// IsTransient implements [persistence.FaultJudge].
func (s *Store) IsTransient(err error) bool { return errors.Is(err, persistence.ErrTransient) }

// Abort ends the transaction that ctx carries, as a server does with the
// victim of a deadlock: what it wrote is gone, and Atomically returns an error
// even if its function returns nil. For tests.
func (s *Store) Abort(ctx context.Context, cause error) error {
	t, err := s.current(ctx)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t.abort(cause)
	return nil
}

// FailCommit makes the commit of the transaction that ctx carries fail with
// the error. For tests.
func (s *Store) FailCommit(ctx context.Context, err error) error {
	t, currentErr := s.current(ctx)
	if currentErr != nil {
		return currentErr
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t.commitErr = err
	return nil
}

// lock takes the store's mutex, unless ctx is cancelled, as a database refuses a
// statement then.
func (s *Store) lock(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	s.mu.Lock()
	return nil
}

// now is the store's clock in the resolution that databases have.
func now() time.Time { return time.Now().UTC().Truncate(time.Microsecond) }
