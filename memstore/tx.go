package memstore

import (
	"context"
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
	waitsFor  *tx
	ended     chan struct{} // closed once the locks are free
	cause     error         // why the transaction cannot commit any more
	commitErr error         // see Store.FailCommit
	done      bool
}

// lockedRow is a row of some table.
type lockedRow interface {
	// settle ends the row's lock if t has it, keeping its write or not.
	settle(t *tx, commit bool)
}

func (s *Store) begin(context.Context) (persistence.Tx, error) {
	return &tx{store: s, marks: map[string]int{}, ended: make(chan struct{})}, nil
}

func (s *Store) current(ctx context.Context) (*tx, error) {
	t, err := persistence.Current(ctx, s)
	if err != nil {
		return nil, fmt.Errorf("memstore: %w", err)
	}
	return t.(*tx), nil
}

func (t *tx) Err() error {
	t.store.mu.Lock()
	defer t.store.mu.Unlock()
	return t.cause
}

func (t *tx) Commit(context.Context) error {
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
	t.store.mu.Lock()
	defer t.store.mu.Unlock()
	t.end(false)
	return nil
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
	close(t.ended)
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
		blocker := *owner
		for other := blocker; other != nil; other = other.waitsFor {
			if other == t {
				t.abort(ErrDeadlock)
				return ErrDeadlock
			}
		}
		t.waitsFor = blocker
		t.store.mu.Unlock()
		var err error
		select {
		case <-blocker.ended:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		t.store.mu.Lock()
		t.waitsFor = nil
		if err != nil {
			return fmt.Errorf("memstore: wait for a lock: %w", err)
		}
	}
}
