package matrix

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/onward-go/outbox/gormtx"
	"github.com/onward-go/outbox/persistence"
)

// Who writes what belongs to a dispatcher in more than one statement does so
// with its cursor locked, or two of them would write what neither has read.
func TestWritersOfADispatchersSidecarTakeTurns(t *testing.T) {
	for _, s := range Servers {
		if s.OneWriter || s.Again {
			continue // they take turns anyway
		}
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			db := Open(t, s.Gorm(t), &gorm.Config{Logger: logger.Discard})
			outbox := gormtx.New(db)
			ctx := t.Context()
			require.NoError(t, outbox.Migrate(ctx))
			require.NoError(t, outbox.Create(ctx, "d", persistence.Cursor{}))
			sub := persistence.Subscription{EventType: "t", Handler: "h"}
			require.NoError(t, outbox.Register(ctx, "d", sub))
			before, err := outbox.Load(ctx, "d")
			require.NoError(t, err)
			calls := map[string]func(ctx context.Context) error{
				"Register": func(ctx context.Context) error { return outbox.Register(ctx, "d", sub) },
				"Serve":    func(ctx context.Context) error { _, err := outbox.Serve(ctx, before.Lease, sub); return err },
				"Prune":    func(ctx context.Context) error { _, err := outbox.Prune(ctx, before.Lease, time.Hour); return err },
				"Save": func(ctx context.Context) error {
					return outbox.Save(ctx, before.Lease, persistence.Progress{CaughtUp: []persistence.Subscription{sub}})
				},
				"Rewind": func(ctx context.Context) error { return outbox.Rewind(ctx, "d", persistence.Cursor{}) },
				"Forget": func(ctx context.Context) error { return outbox.Forget(ctx, "d") },
			}
			require.NoError(t, db.Transaction(func(other *gorm.DB) error {
				require.NoError(t, other.Exec("SELECT 1 FROM outbox_cursors WHERE dispatcher = 'd' FOR UPDATE").Error)
				impatient, cancel := context.WithTimeout(ctx, 2*time.Second)
				defer cancel()
				results := make(chan error, len(calls))
				for _, call := range calls {
					go func() { results <- call(impatient) }()
				}
				for range calls {
					require.Error(t, <-results, "it did not wait")
				}
				return nil
			}))
			after, err := outbox.Load(ctx, "d")
			require.NoError(t, err)
			require.Equal(t, before, after)
			for _, name := range []string{"Register", "Serve", "Prune", "Save", "Rewind", "Forget"} {
				require.NoError(t, calls[name](ctx), name)
			}
		})
	}
}
