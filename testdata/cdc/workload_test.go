package cdc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/gormtx"
	"github.com/onward-go/outbox/persistence"
)

var errTakenBack = errors.New("taken back")

// workload remembers the events that it has committed.
type workload struct {
	db database

	mu        sync.Mutex
	committed map[string]events.Event
}

func newWorkload(db database) *workload {
	return &workload{db: db, committed: map[string]events.Event{}}
}

// everyByte is a payload that no text could carry.
var everyByte = func() (all []byte) {
	for b := range 256 {
		all = append(all, byte(b))
	}
	return all
}()

// change changes an account and publishes n events of it, whose ids rise in
// the order of the account's commits: whoever comes second waits for the row.
func (w *workload) change(ctx context.Context, account, eventType string, n int) error {
	tx := gormtx.Tx(ctx)
	if err := tx.Exec("UPDATE accounts SET changes = changes + 1 WHERE id = ?", account).Error; err != nil {
		return err
	}
	var changes int
	if err := tx.Raw("SELECT changes FROM accounts WHERE id = ?", account).Scan(&changes).Error; err != nil {
		return err
	}
	evts := make([]events.Event, n)
	for i := range evts {
		evts[i] = events.Event{
			ID: fmt.Sprintf("%s-%04d-%04d", account, changes, i), Type: eventType, AccountID: `Zürich 🏠 'a"\` + "\t",
			AggregateType: "account", AggregateID: account, Payload: bytes.Repeat(everyByte, i%3),
		}
	}
	if n > 0 && changes == 1 {
		evts[0].Payload = bytes.Repeat(everyByte, 2000) // stored out of line
	}
	if err := events.NewPublisher(w.db.outbox).Publish(ctx, evts...); err != nil {
		return err
	}
	return persistence.AfterCommit(ctx, func(context.Context) {
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, evt := range evts {
			w.committed[evt.ID] = evt
		}
	})
}

func (w *workload) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.committed)
}

func (w *workload) open(t *testing.T, accounts ...string) {
	for _, account := range accounts {
		require.NoError(t, w.db.Exec("INSERT INTO accounts (id, changes) VALUES (?, 0)", account).Error)
	}
}

// atomically commits, unless the function says that it is taken back.
func (w *workload) atomically(t *testing.T, f func(ctx context.Context) error) {
	if err := w.db.outbox.Atomically(t.Context(), f); err != nil {
		require.ErrorIs(t, err, errTakenBack)
	}
}

// publish commits batches, takes others back, wholly and to a savepoint, and
// has producers that meet at the same accounts.
func (w *workload) publish(t *testing.T) {
	w.open(t, "a", "b", "c", "late", "early")
	w.atomically(t, func(ctx context.Context) error { return w.change(ctx, "a", "changed", 50) })
	w.atomically(t, func(ctx context.Context) error {
		if err := w.change(ctx, "a", "changed", 2); err != nil {
			return err
		}
		inner := w.db.outbox.Atomically(ctx, func(ctx context.Context) error {
			return errors.Join(w.change(ctx, "b", "changed", 3), errTakenBack)
		})
		require.ErrorIs(t, inner, errTakenBack)
		return w.change(ctx, "c", "broken", 1)
	})
	w.atomically(t, func(ctx context.Context) error {
		return errors.Join(w.change(ctx, "b", "changed", 4), errTakenBack)
	})
	// The first to be stamped is the last to commit.
	w.atomically(t, func(ctx context.Context) error {
		err := w.change(ctx, "late", "changed", 1)
		w.atomically(t, func(ctx context.Context) error { return w.change(ctx, "early", "changed", 1) })
		return err
	})
	var producers sync.WaitGroup
	results := make(chan error, 4*10)
	for range 4 {
		producers.Go(func() {
			for i := range 10 {
				results <- w.db.outbox.Atomically(t.Context(), func(ctx context.Context) error {
					return w.change(ctx, []string{"a", "b"}[i%2], "changed", 1+i%3)
				})
			}
		})
	}
	producers.Wait()
	close(results)
	for err := range results {
		require.NoError(t, err)
	}
}

// publishLongAgo inserts events with a stamp of the past, by hand.
func (w *workload) publishLongAgo(t *testing.T) {
	for day := 1; day <= 20; day++ {
		evt := events.Event{
			ID: fmt.Sprintf("old-%04d", day), Type: "old", AggregateType: "account", AggregateID: "old", Payload: everyByte,
			CreatedTime: time.Date(2020, 1, day, 12, 0, 0, 123456000, time.UTC),
		}
		require.NoError(t, w.db.Exec(`INSERT INTO outbox (id, account_id, aggregate_type, aggregate_id, event_type, payload, created_time)
			VALUES (?, '', ?, ?, ?, ?, ?)`, evt.ID, evt.AggregateType, evt.AggregateID, evt.Type, evt.Payload, evt.CreatedTime).Error)
		w.committed[evt.ID] = evt
	}
}

// dispatch delivers everything: to handlers that succeed, one of which
// publishes, and to one that gives up; then rewinds the cursor and does it
// again.
func (w *workload) dispatch(t *testing.T) {
	outbox := w.db.outbox
	w.open(t, "follower")
	d := events.NewDispatcher(outbox, outbox, outbox, outbox, events.WithMaxAttempts(2))
	require.NoError(t, d.Subscribe("changed", "write", func(ctx context.Context, evt events.Event) error {
		return gormtx.Tx(ctx).Exec("UPDATE accounts SET changes = changes + 1000 WHERE id = 'follower'").Error
	}))
	require.NoError(t, d.Subscribe("broken", "give-up", func(context.Context, events.Event) error { return errors.New("broken") }))
	require.NoError(t, d.Subscribe("old", "follow", func(ctx context.Context, evt events.Event) error {
		return w.change(ctx, "follower", "followed", 1)
	}))
	for pass := range 2 {
		if pass > 0 {
			require.NoError(t, outbox.Rewind(t.Context(), events.DefaultName, persistence.Cursor{}))
		}
		settled := 0
		for settled < w.count() { // the safe mark may follow in steps
			n, err := d.RunOnce(t.Context(), 10)
			settled += n
			if err != nil && !errors.Is(err, events.ErrDeadLettered) {
				require.ErrorContains(t, err, "broken") // the handler that gives up
			}
		}
		letters, err := outbox.ListDeadLetters(t.Context(), persistence.DeadLetterQuery{Limit: 10})
		require.NoError(t, err)
		require.Len(t, letters, 1)
	}
}

// records returns what the table holds, which is what was committed.
func (w *workload) records(t *testing.T) (all []persistence.Record) {
	for len(all) < w.count() { // the safe mark may follow in steps
		var err error
		all, err = w.db.outbox.ReadAfter(t.Context(), persistence.Cursor{}, 10_000)
		require.NoError(t, err)
	}
	for _, r := range all {
		evt := w.committed[r.ID]
		require.Equal(t, persistence.Record{
			ID: evt.ID, AccountID: evt.AccountID, AggregateType: evt.AggregateType, AggregateID: evt.AggregateID,
			EventType: evt.Type, Payload: r.Payload, CreatedTime: r.CreatedTime,
		}, r)
		require.True(t, bytes.Equal(evt.Payload, r.Payload), r.ID)
	}
	require.Len(t, all, w.count())
	return all
}
