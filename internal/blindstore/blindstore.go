package blindstore

import (
	"context"
	"errors"
	"sync"

	"github.com/onward-go/outbox/persistence"
)

// Store never tells that a marker exists before it has refused to record it.
type Store struct {
	persistence.IdempotencyStore
	refused sync.Map // markers, by their keys
}

// New returns a store over another one.
func New(s persistence.IdempotencyStore) *Store { return &Store{IdempotencyStore: s} }

// RecordNew implements persistence.IdempotencyStore.
func (s *Store) RecordNew(ctx context.Context, marker persistence.Marker) error {
	err := s.IdempotencyStore.RecordNew(ctx, marker)
	if errors.Is(err, persistence.ErrApplied) {
		s.refused.Store(marker.Key(), true)
	}
	return err
}

// Applied implements persistence.IdempotencyStore.
func (s *Store) Applied(_ context.Context, markers ...persistence.Marker) ([]bool, error) {
	applied := make([]bool, len(markers))
	for i, m := range markers {
		_, applied[i] = s.refused.Load(m.Key())
	}
	return applied, nil
}
