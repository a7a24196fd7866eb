package model

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/onward-go/outbox/memstore"
	"github.com/onward-go/outbox/outboxtest"
	"github.com/onward-go/outbox/persistence"
)

// stamped is an outbox in memory that does what PostgreSQL and MySQL do: a row
// is stamped when it is written, by a clock that may be set back, and becomes
// visible when its transaction commits. Beside rows, it is a [memstore.Store].
type stamped struct {
	*memstore.Store
	rows *memstore.Table[rowKey, persistence.Record]

	mu   sync.Mutex
	set  time.Duration           // how far the clock was set
	last time.Time               // the last stamp, since the clock was set
	open map[*producer]time.Time // the first stamp of each open transaction
}

type rowKey struct {
	micros int64
	id     string
}

// producer is a transaction that may have written rows.
type producer struct{ first rowKey }

// holdoutAge is how long a producer is open before it holds the mark back.
const holdoutAge = 250 * time.Millisecond

type producerKey struct{ *stamped }

func newStamped() *stamped {
	s := &stamped{Store: memstore.New(), open: map[*producer]time.Time{}}
	s.rows = memstore.NewTable[rowKey, persistence.Record](s.Store)
	return s
}

// Atomically implements [persistence.Transactor]. A transaction is open until
// its rows are visible.
func (s *stamped) Atomically(ctx context.Context, fn func(context.Context) error) error {
	if fn == nil || persistence.Holds(ctx, s.Store) {
		return s.Store.Atomically(ctx, fn)
	}
	p := new(producer)
	ended := func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.open, p)
	}
	defer ended()
	return s.Store.Atomically(context.WithValue(ctx, producerKey{s}, p), func(ctx context.Context) error {
		// Its rows are visible to the hooks that follow.
		if err := persistence.AfterCommit(ctx, func(context.Context) { ended() }); err != nil {
			return err
		}
		return fn(ctx)
	})
}

// Append implements [persistence.OutboxStore].
func (s *stamped) Append(ctx context.Context, records ...persistence.Record) error {
	if _, err := persistence.Current(ctx, s.Store); err != nil {
		return err
	}
	if err := persistence.Validate("stamped", persistence.DefaultMaxPayload, records...); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	for _, r := range records {
		r.CreatedTime = s.stamp(ctx.Value(producerKey{s}).(*producer), r.ID)
		r.Payload = bytes.Clone(r.Payload)
		if err := s.rows.Put(ctx, rowKey{r.CreatedTime.UnixMicro(), r.ID}, r); err != nil {
			return err
		}
	}
	return nil
}

func (s *stamped) stamp(p *producer, id string) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = s.next()
	if p.first == (rowKey{}) {
		p.first = rowKey{s.last.UnixMicro(), id}
	}
	if first, ok := s.open[p]; !ok || s.last.Before(first) {
		s.open[p] = s.last
	}
	return s.last
}

// next returns the next stamp. A clock moves on between two statements, unlike
// that of a bubble.
func (s *stamped) next() time.Time {
	next := s.now()
	if after := s.last.Add(time.Microsecond); next.Before(after) {
		next = after
	}
	return next
}

func (s *stamped) now() time.Time {
	return time.Now().Add(s.set).UTC().Truncate(time.Microsecond)
}

// step sets the clock.
func (s *stamped) step(by time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.set += by
	s.last = time.Time{}
}

// SafeMark implements [persistence.OutboxStore].
func (s *stamped) SafeMark(ctx context.Context) (persistence.SafeMark, error) {
	if ctx.Err() != nil {
		return persistence.SafeMark{}, context.Cause(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	mark := persistence.SafeMark{Time: s.next(), Now: s.now()}
	mark.Holdouts.Beyond = mark.Time
	for p, first := range s.open {
		if first.Before(mark.Time) {
			mark.Time = first
		}
		if first.Before(mark.Now.Add(-holdoutAge)) {
			mark.Holdouts.Transactions = append(mark.Holdouts.Transactions, p.first.name())
		} else if first.Before(mark.Holdouts.Beyond) {
			mark.Holdouts.Beyond = first
		}
	}
	return mark, nil
}

// ReadAfter implements [persistence.OutboxStore].
func (s *stamped) ReadAfter(ctx context.Context, after persistence.Cursor, limit int) ([]persistence.Record, error) {
	mark, err := s.SafeMark(ctx)
	if err != nil {
		return nil, err
	}
	if err := persistence.CheckLimit(limit); err != nil {
		return nil, err
	}
	page, err := s.ReadWindow(ctx, persistence.WindowRead{After: after, Frontier: after, Limit: limit})
	records := page.Records
	if i := slices.IndexFunc(records, func(r persistence.Record) bool { return !r.CreatedTime.Before(mark.Time) }); i >= 0 {
		records = records[:i]
	}
	return records, err
}

// ReadWindow implements [persistence.OutboxStore].
func (s *stamped) ReadWindow(ctx context.Context, read persistence.WindowRead) (persistence.WindowPage, error) {
	if err := read.Check(); err != nil {
		return persistence.WindowPage{}, err
	}
	visible := s.visible(ctx)
	held := holdOut(read.Holdouts, visible)
	s.mu.Lock()
	now := s.now()
	s.mu.Unlock()
	return read.Page(now, func(yield func(persistence.Record) bool) {
		for _, r := range visible {
			if r.Cursor().Compare(read.After) <= 0 {
				continue
			}
			if held && r.Cursor().Compare(read.Counted) <= 0 && r.CreatedTime.Before(read.Holdouts.Beyond) {
				continue // a database does not look
			}
			if !yield(r) {
				return
			}
		}
	}), ctx.Err()
}

// name is what a producer is called whose first row it is: as long as that is not
// visible, none of them is.
func (k rowKey) name() string { return fmt.Sprint(k.micros, "/", k.id) }

func holdOut(h persistence.Holdouts, visible []persistence.Record) bool {
	for _, r := range visible {
		if slices.Contains(h.Transactions, rowKey{r.CreatedTime.UnixMicro(), r.ID}.name()) {
			return false
		}
	}
	return len(h.Transactions) > 0
}

// CountRows implements [persistence.OutboxStore].
func (s *stamped) CountRows(ctx context.Context, from, to time.Time) ([]persistence.Bucket, error) {
	var buckets []persistence.Bucket
	for _, r := range s.visible(ctx) {
		if r.CreatedTime.Before(from) || !r.CreatedTime.Before(to) {
			continue
		}
		start := persistence.BucketStart(r.CreatedTime)
		if n := len(buckets); n == 0 || !buckets[n-1].Start.Equal(start) {
			buckets = append(buckets, persistence.Bucket{Start: start})
		}
		last := &buckets[len(buckets)-1]
		last.Rows++
		last.Offsets.Add(r.CreatedTime)
	}
	return buckets, ctx.Err()
}

// RegisterAt implements [persistence.SubscriptionStore]. The rows are here, so the
// embedded store cannot settle them. What is visible is looked at first: what commits
// meanwhile is new.
func (s *stamped) RegisterAt(ctx context.Context, dispatcher string, begin persistence.Beginning, subscriptions ...persistence.Subscription) (left bool, err error) {
	visible := s.visible(ctx)
	before, err := s.ListSubscriptions(ctx)
	if err != nil {
		return false, err
	}
	if left, err = s.Store.RegisterAt(ctx, dispatcher, begin, subscriptions...); err != nil || !begin.Settle {
		return left, err
	}
	after, err := s.ListSubscriptions(ctx)
	if err != nil {
		return false, err
	}
	var markers []persistence.Marker
	for _, sub := range after {
		is := func(other persistence.SubscriptionState) bool { return other.Subscription == sub.Subscription }
		if !slices.Contains(subscriptions, sub.Subscription) || slices.ContainsFunc(before, is) {
			continue
		}
		for _, r := range visible {
			if r.EventType == sub.EventType && r.Cursor().Compare(sub.Start) > 0 {
				markers = append(markers, persistence.Marker{Event: r.Cursor(), Handler: sub.Handler})
			}
		}
	}
	return false, s.Store.Atomically(persistence.Detach(ctx), func(ctx context.Context) error {
		_, err := s.Record(ctx, markers...)
		return err
	})
}

// visible returns the committed rows, in order.
func (s *stamped) visible(ctx context.Context) []persistence.Record {
	var all []persistence.Record
	for _, r := range s.rows.All(persistence.Detach(ctx)) {
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b persistence.Record) int { return a.Cursor().Compare(b.Cursor()) })
	return all
}

// insert writes a row as somebody else would, with a stamp of his own.
func (s *stamped) insert(ctx context.Context, r persistence.Record) error {
	return s.Store.Atomically(ctx, func(ctx context.Context) error {
		return s.rows.Put(ctx, rowKey{r.CreatedTime.UnixMicro(), r.ID}, r)
	})
}

func openStamped() backend {
	store := newStamped()
	f := newEffects(store.Store)
	return backend{apply: f.apply, applied: f.applied, step: store.step, Backend: store.backend()}
}

func (s *stamped) backend() outboxtest.Backend {
	state := memstore.NewTable[string, string](s.Store)
	return outboxtest.Backend{
		Transactor:  s,
		Outbox:      s,
		Cursors:     s,
		Admin:       s,
		Idempotency: s,
		DeadLetters: s,
		Insert:      s.insert,
		Put:         state.Put,
		Get: func(ctx context.Context, key string) (string, error) {
			value, _ := state.Get(ctx, key)
			return value, nil
		},
		EndTransaction: func(ctx context.Context) error { return s.Abort(ctx, memstore.ErrDeadlock) },
		FailCommit:     func(ctx context.Context) error { return s.Store.FailCommit(ctx, errors.New("disk full")) },
	}
}

// The outbox of the model keeps the contract that every database keeps, but for
// retention, which forgets the rows of the store itself.
func TestStampedConforms(t *testing.T) {
	outboxtest.Run(t, func(testing.TB) outboxtest.Backend {
		s := newStamped()
		b := s.backend()
		b.Retention, b.Insert = s, nil
		return b
	})
}
