package memstore

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/onward-go/outbox/persistence"
)

// tx is an open transaction. Its fields are guarded by the store's mutex.
type tx struct {
	store     *Store
	events    []persistence.Record
	rows      []lockedRow    // rows that the transaction has, or had, locked
	undo      []func()       // takes the writes back, last first
	marks     map[string]int // savepoints: length of undo
	waitsOn   **tx           // the owner of the row that the transaction waits for
	cause     error          // why the transaction cannot commit any more
	commitErr error          // see Store.FailCommit
	done      bool
	before    *tx         // commits when this one begins
	committed func(error) // is told of it
}

// lockedRow is a row of some table.
type lockedRow interface {
	// settle ends the row's lock if t has it, keeping its write or not.
	settle(t *tx, commit bool)
}

func (s *Store) begin(context.Context) (persistence.Tx, error) {
	return &tx{store: s, marks: map[string]int{}}, nil
}

func (s *Store) current(ctx context.Context) (*tx, error) {
	t, err := persistence.Current(ctx, s)
	if err != nil {
		return nil, fmt.Errorf("memstore: %w", err)
	}
	return t.(*tx), t.(*tx).endBefore()
}

func (t *tx) Err() error {
	t.store.mu.Lock()
	defer t.store.mu.Unlock()
	return t.cause
}

func (t *tx) Commit(context.Context) error {
	if err := t.endBefore(); err != nil {
		return err
	}
	s := t.store
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case t.cause != nil:
		return t.cause
	case t.commitErr != nil:
		return t.commitErr
	}
	s.publish(t.events)
	t.end(true)
	return nil
}

func (t *tx) Rollback(context.Context) error {
	_ = t.endBefore() // it has been told
	t.store.mu.Lock()
	defer t.store.mu.Unlock()
	t.end(false)
	return nil
}

// Hold implements persistence.Following.
func (t *tx) Hold() bool { return t.before == nil && t.Err() == nil }

// Follow implements persistence.Following.
func (t *tx) Follow(committed func(error)) persistence.Tx {
	return &tx{store: t.store, marks: map[string]int{}, before: t, committed: committed}
}

// endBefore commits the transaction before, if there is one left.
func (t *tx) endBefore() error {
	before := t.before
	if before == nil {
		return nil
	}
	t.before = nil
	err := before.Commit(context.Background())
	if err != nil {
		err = errors.Join(err, before.Rollback(context.Background()))
		t.store.mu.Lock()
		t.abort(err)
		t.store.mu.Unlock()
	}
	t.committed(err)
	return err
}

func (t *tx) Savepoint(_ context.Context, name string) error {
	t.store.mu.Lock()
	defer t.store.mu.Unlock()
	t.marks[name] = len(t.undo)
	return nil
}

func (t *tx) RollbackTo(_ context.Context, name string) error {
	t.store.mu.Lock()
	defer t.store.mu.Unlock()
	mark, ok := t.marks[name]
	if !ok {
		return fmt.Errorf("memstore: no savepoint %q", name)
	}
	for _, undo := range slices.Backward(t.undo[mark:]) {
		undo()
	}
	t.store.wake()
	t.undo = t.undo[:mark]
	delete(t.marks, name)
	return nil
}

func (t *tx) Release(_ context.Context, name string) error {
	t.store.mu.Lock()
	defer t.store.mu.Unlock()
	delete(t.marks, name)
	return nil
}

func (t *tx) abort(cause error) {
	if t.cause == nil {
		t.cause = cause
	}
	t.end(false)
}

func (t *tx) end(commit bool) {
	if t.done {
		return
	}
	t.done = true
	for _, row := range t.rows {
		row.settle(t, commit)
	}
	t.store.wake()
}

// lock waits until the row that owner belongs to is free and takes it. The
// store's mutex is held on entry and on return, and given up in between.
func (t *tx) lock(ctx context.Context, owner **tx) error {
	for {
		switch {
		case t.cause != nil:
			return t.cause
		case *owner == nil:
			*owner = t
			return nil
		case *owner == t:
			return nil
		}
		for other := *owner; other != nil && other.waitsOn != nil; {
			if other = *other.waitsOn; other == t {
				t.abort(ErrDeadlock)
				return ErrDeadlock
			}
		}
		t.waitsOn = owner
		freed := t.store.freed
		t.store.mu.Unlock()
		var err error
		select {
		case <-freed:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		t.store.mu.Lock()
		t.waitsOn = nil
		if err != nil {
			return fmt.Errorf("memstore: wait for a lock: %w", err)
		}
	}
}

// wake lets whoever waits for a row look again.
func (s *Store) wake() {
	close(s.freed)
	s.freed = make(chan struct{})
}
