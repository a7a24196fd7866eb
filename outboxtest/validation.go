package outboxtest

import (
	"context"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/persistence"
)

func (s *suite) needsValidator() {
	s.Helper()
	if s.Validator == nil {
		s.Skip("the backend has no Validator")
	}
}

var validationRules = []rule{
	{"what is set up well is valid for every role, and stays as it is", func(s *suite) {
		s.needsValidator()
		for _, roles := range [][]persistence.Role{
			nil, {persistence.RoleProducer}, {persistence.RoleDispatcher}, {persistence.RoleRetention},
			{persistence.RoleProducer, persistence.RoleDispatcher, persistence.RoleRetention},
		} {
			v, err := s.Validator.Validate(s.ctx, roles...)
			require.NoError(s, err)
			require.Empty(s, v.Findings, v.String())
			require.NotEmpty(s, v.Server)
			require.WithinDuration(s, time.Now(), v.Now, time.Minute)
			require.Less(s, v.ClockAhead.Duration().Abs(), time.Minute)
		}
		states, err := s.Admin.ListCursors(s.ctx)
		require.NoError(s, err)
		require.Empty(s, states)
		require.Empty(s, s.read(beginning))
	}},
	{"a role that does not exist is refused", func(s *suite) {
		s.needsValidator()
		_, err := s.Validator.Validate(s.ctx, persistence.RoleProducer, "janitor")
		require.ErrorIs(s, err, persistence.ErrInvalid)
		require.ErrorContains(s, err, "janitor")
	}},
	{"a validation takes no part in a transaction", func(s *suite) {
		s.needsValidator()
		if s.OneConnection {
			s.Skip("cannot occur: the transaction has the only connection")
		}
		require.NoError(s, s.Transactor.Atomically(s.ctx, func(ctx context.Context) error {
			if err := s.Outbox.Append(ctx, record("a")); err != nil {
				return err
			}
			_, err := s.Validator.Validate(ctx)
			return err
		}))
		s.wantIDs("a")
	}},
}
