package memstore

import (
	"context"

	"github.com/onward-go/outbox/persistence"
)

// Validate implements [persistence.Validator]. Nothing can be wrong but the options.
func (s *Store) Validate(ctx context.Context, roles ...persistence.Role) (persistence.Validation, error) {
	if _, err := persistence.CheckRoles(roles); err != nil {
		return persistence.Validation{}, err
	}
	if s.invalid != nil {
		return persistence.Validation{}, s.invalid
	}
	if ctx.Err() != nil {
		return persistence.Validation{}, context.Cause(ctx)
	}
	return persistence.Validation{Server: "memory", Now: now()}, nil
}
