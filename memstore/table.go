package memstore

import (
	"context"
	"fmt"
	"maps"
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
	return t.Update(ctx, key, func(V, bool) (V, error) { return value, nil })
}

// Update locks the row of key, then sets it to what change makes of the
// current value. The row stays as it is when change returns an error. Errors
// are those of Put.
func (t *Table[K, V]) Update(ctx context.Context, key K, change func(value V, exists bool) (V, error)) error {
	return t.write(ctx, key, func(c cell[V]) (cell[V], error) {
		value, err := change(c.value, c.exists)
		return cell[V]{value, true}, err
	})
}

// Delete deletes the row of key in the transaction that ctx carries. Errors
// are those of Put.
func (t *Table[K, V]) Delete(ctx context.Context, key K) error {
	return t.write(ctx, key, func(cell[V]) (cell[V], error) { return cell[V]{}, nil })
}

func (t *Table[K, V]) write(ctx context.Context, key K, change func(cell[V]) (cell[V], error)) error {
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
	// The row is locked, so the change needs no mutex, and may use the store.
	before := r.pending
	after, err := func() (cell[V], error) {
		t.store.mu.Unlock()
		defer t.store.mu.Lock()
		return change(before)
	}()
	switch {
	case err != nil:
		return err
	case tx.cause != nil:
		return tx.cause
	}
	r.pending = after
	tx.undo = append(tx.undo, func() { r.pending = before })
	return nil
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
