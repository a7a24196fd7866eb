package iam_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What is found for update waits for whoever found it before. One that does
// wait runs into its deadline, which is the proof.
func TestFindForUpdateLocks(t *testing.T) {
	everywhere(t, func(t *testing.T, w wiring) {
		if w.oneWriter {
			t.Skip("one writer: the second transaction does not begin")
		}
		f := w.open(t)
		f.register(t, "ada")
		for what, find := range map[string]func(context.Context) error{
			"the user": func(ctx context.Context) error { _, err := f.ports.Users.FindForUpdate(ctx, "ada"); return err },
			"the keys": func(ctx context.Context) error { _, err := f.ports.APIKeys.OfUserForUpdate(ctx, "ada"); return err },
		} {
			require.NoError(t, f.outbox.Atomically(t.Context(), func(held context.Context) error {
				if err := find(held); err != nil {
					return err
				}
				ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
				defer cancel()
				assert.Error(t, f.outbox.Atomically(ctx, find), "%s: the second transaction got past the first", what)
				assert.ErrorIs(t, ctx.Err(), context.DeadlineExceeded, what)
				return nil
			}))
			require.NoError(t, f.outbox.Atomically(t.Context(), find), what)
		}
	})
}
