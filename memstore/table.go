package memstore

import (
	"context"
	"fmt"
	"maps"

	"github.com/onward-go/outbox/persistence"
)

// Table is a table of the application's own in the store's transactions, for
// repositories that have to roll back with the events they publish. Readers
// see what is committed and what their own transaction wrote. A writer locks
// the row until its transaction ends, and another writer of the row waits. A
// Table is safe for concurrent use.
//
// Values are kept as they are: one that holds references must not be changed
// after it was put.
type Table[K comparable, V any] struct {
	store *Store
	rows  map[K]*row[V]
}

type row[V any] struct {
	committed, pending cell[V]
	owner              *tx
	writes             int // of pending
}

type cell[V any] struct {
	value  V
	exists bool
}

// NewTable returns an empty table of the store.
func NewTable[K comparable, V any](store *Store) *Table[K, V] {
	return &Table[K, V]{store: store, rows: map[K]*row[V]{}}
}

// Get returns the value of key, and whether there is one.
func (t *Table[K, V]) Get(ctx context.Context, key K) (V, bool) {
	tx := t.reader(ctx)
	t.store.mu.Lock()
	defer t.store.mu.Unlock()
	c := t.rows[key].visibleTo(tx)
	return c.value, c.exists
}

// All returns a copy of what the reader sees.
func (t *Table[K, V]) All(ctx context.Context) map[K]V {
	tx := t.reader(ctx)
	t.store.mu.Lock()
	defer t.store.mu.Unlock()
	all := make(map[K]V, len(t.rows))
	for key, r := range maps.All(t.rows) {
		if c := r.visibleTo(tx); c.exists {
			all[key] = c.value
		}
	}
	return all
}

// Put sets the value of key in the transaction that ctx carries. It returns
// [persistence.ErrNoTransaction] without one, and [ErrDeadlock] when waiting
// for the row would be for ever.
func (t *Table[K, V]) Put(ctx context.Context, key K, value V) error {
	return t.write(ctx, key, func(*row[V]) (cell[V], error) { return cell[V]{value, true}, nil })
}

// mostRuns is how often Update calls its function before it takes it for one that
// writes the row itself.
const mostRuns = 10_000

// Update locks the row of key, then sets it to what change makes of the
// current value. The row stays as it is when change returns an error.
//
// If another goroutine of the same transaction has written the row meanwhile, change
// is called again, with the value of then. Change must not write the row itself: that
// is [persistence.ErrInvalid], and the row stays as it was before. Other errors are
// those of Put.
func (t *Table[K, V]) Update(ctx context.Context, key K, change func(value V, exists bool) (V, error)) error {
	return t.write(ctx, key, func(r *row[V]) (cell[V], error) {
		first := r.pending
		for range mostRuns {
			before, writes := r.pending, r.writes
			value, err := t.outside(func() (V, error) { return change(before.value, before.exists) })
			if err != nil || r.writes == writes {
				return cell[V]{value, true}, err
			}
		}
		r.set(first)
		return first, fmt.Errorf("memstore: %w: the function that updates row %v writes the row itself", persistence.ErrInvalid, key)
	})
}

// outside calls a function without the store's mutex, which the caller holds: the
// function may use the store.
func (t *Table[K, V]) outside(fn func() (V, error)) (V, error) {
	t.store.mu.Unlock()
	defer t.store.mu.Lock()
	return fn()
}

// Delete deletes the row of key in the transaction that ctx carries. Errors
// are those of Put.
func (t *Table[K, V]) Delete(ctx context.Context, key K) error {
	return t.write(ctx, key, func(*row[V]) (cell[V], error) { return cell[V]{}, nil })
}

// write locks a row and sets it to what change returns, which is called with the
// store's mutex held.
func (t *Table[K, V]) write(ctx context.Context, key K, change func(*row[V]) (cell[V], error)) error {
	tx, err := t.store.current(ctx)
	if err != nil {
		return err
	}
	t.store.mu.Lock()
	defer t.store.mu.Unlock()
	r := t.rows[key]
	if r == nil {
		r = &row[V]{}
		t.rows[key] = r
	}
	held := r.owner == tx
	if err := tx.lock(ctx, &r.owner); err != nil {
		return fmt.Errorf("memstore: lock row %v: %w", key, err)
	}
	if !held {
		r.pending = r.committed
		tx.rows = append(tx.rows, r)
		tx.undo = append(tx.undo, func() { r.owner = nil })
	}
	after, err := change(r)
	switch {
	case err != nil:
		return err
	case tx.cause != nil:
		return tx.cause
	}
	before := r.pending
	r.set(after)
	tx.undo = append(tx.undo, func() { r.set(before) })
	return nil
}

func (r *row[V]) set(c cell[V]) {
	r.pending = c
	r.writes++
}

// forget drops rows that nobody has locked. The caller holds the store's mutex.
func (t *Table[K, V]) forget(old func(K) bool) {
	maps.DeleteFunc(t.rows, func(key K, r *row[V]) bool { return r.owner == nil && old(key) })
}

// purge drops up to limit rows that nobody has locked, by their values. The
// caller holds the store's mutex.
func (t *Table[K, V]) purge(limit int, old func(V) bool) (purged int) {
	for key, r := range t.rows {
		if purged == limit {
			break
		}
		if r.owner == nil && r.committed.exists && old(r.committed.value) {
			delete(t.rows, key)
			purged++
		}
	}
	return purged
}

// reader returns the transaction whose writes a reader sees, if any.
func (t *Table[K, V]) reader(ctx context.Context) *tx {
	tx, err := t.store.current(ctx)
	if err != nil {
		return nil
	}
	return tx
}

func (r *row[V]) visibleTo(t *tx) cell[V] {
	switch {
	case r == nil:
		return cell[V]{}
	case t != nil && r.owner == t:
		return r.pending
	}
	return r.committed
}

func (r *row[V]) settle(t *tx, commit bool) {
	if r.owner != t {
		return
	}
	if commit {
		r.committed = r.pending
	}
	r.pending = cell[V]{}
	r.owner = nil
}
