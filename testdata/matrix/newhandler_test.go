package matrix

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/gormtx"
	"github.com/onward-go/outbox/persistence"
)

// A handler that comes later gets what commits from now on: nothing that has been
// committed, though an open producer keeps it above the safe mark, and what that
// producer has written.
func TestANewHandlerBesideAnOpenProducer(t *testing.T) {
	for _, s := range Servers {
		if s.OneWriter || s.Again {
			continue // no producer is open while another one commits
		}
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			db := Open(t, s.Gorm(t), &gorm.Config{Logger: logger.Discard})
			outbox := gormtx.New(db)
			require.NoError(t, outbox.Migrate(t.Context()))
			publisher := events.NewPublisher(outbox)
			publish := func(ctx context.Context, ids ...string) error {
				return outbox.Atomically(ctx, func(ctx context.Context) error {
					for _, id := range ids {
						if err := publisher.Publish(ctx, events.Event{ID: id, Type: "t", AggregateType: "a", AggregateID: id}); err != nil {
							return err
						}
					}
					return nil
				})
			}
			got := map[string][]string{}
			dispatcher := func(opts []events.Option, handlers ...string) *events.Dispatcher {
				d := events.NewDispatcher(outbox, outbox, outbox, outbox, append(opts, events.WithConcurrency(1))...)
				for _, h := range handlers {
					require.NoError(t, d.Subscribe("t", h, func(ctx context.Context, evt events.Event) error {
						return persistence.AfterCommit(ctx, func(context.Context) { got[h] = append(got[h], evt.ID) })
					}))
				}
				return d
			}
			run := func(d *events.Dispatcher) {
				_, err := d.RunOnce(t.Context(), 100)
				require.NoError(t, err)
			}
			before := dispatcher(nil, "old")
			require.NoError(t, publish(t.Context(), "first"))
			for len(got["old"]) == 0 {
				run(before)
			}
			published, end := make(chan struct{}), make(chan struct{})
			done := make(chan error, 1)
			go func() {
				done <- outbox.Atomically(t.Context(), func(ctx context.Context) error {
					err := publish(ctx, "open")
					close(published)
					<-end
					return err
				})
			}()
			<-published
			require.NoError(t, publish(t.Context(), "a", "b"))
			require.NoError(t, publish(t.Context(), "c"))
			run(before)
			require.Equal(t, []string{"first", "a", "b", "c"}, got["old"])

			next := dispatcher(nil, "old", "new")
			now := dispatcher([]events.Option{events.WithName("now"), events.WithStartNow()}, "now")
			run(next)
			run(now)
			require.Empty(t, got["new"])
			require.Empty(t, got["now"])
			require.NoError(t, publish(t.Context(), "d"))
			close(end)
			require.NoError(t, <-done)
			for len(got["new"]) < 2 || len(got["now"]) < 2 {
				run(next)
				run(now)
			}
			for _, h := range []string{"new", "now"} {
				slices.Sort(got[h])
				require.Equal(t, []string{"d", "open"}, got[h], h)
			}
			run(next)
			require.Len(t, got["new"], 2)
		})
	}
}

// A process that has just begun to look knows a mark at once, unless a producer is
// open; then it says which row of the fence has none, and does not wait.
func TestAFirstMarkIsARealOne(t *testing.T) {
	for _, s := range Servers {
		if s.Again {
			continue
		}
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			db := Open(t, s.Gorm(t), &gorm.Config{Logger: logger.Discard})
			outbox := gormtx.New(db)
			require.NoError(t, outbox.Migrate(t.Context()))
			publish := func(ctx context.Context, id string) error {
				return outbox.Atomically(ctx, func(ctx context.Context) error {
					return outbox.Append(ctx, persistence.Record{ID: id, EventType: "t", AggregateType: "a", AggregateID: id})
				})
			}
			require.NoError(t, publish(t.Context(), "history"))
			// The clock of MySQL's fence has moved on by a row.
			for first, err := outbox.SafeMark(t.Context()); ; {
				require.NoError(t, err)
				mark, err := outbox.SafeMark(t.Context())
				require.NoError(t, err)
				if mark.Now.Sub(first.Now) > 100*time.Millisecond || s.OneWriter {
					break
				}
			}
			records, err := gormtx.New(db).ReadAfter(t.Context(), persistence.Cursor{}, 10)
			require.NoError(t, err)
			require.Len(t, records, 1)
			fresh := gormtx.New(db)
			d := events.NewDispatcher(fresh, fresh, fresh, fresh, events.WithStartNow())
			delivered := 0
			require.NoError(t, d.Subscribe("t", "h", func(context.Context, events.Event) error { delivered++; return nil }))
			_, err = d.RunOnce(t.Context(), 10)
			require.NoError(t, err)
			require.Zero(t, delivered, "that is history")
			if s.OneWriter {
				return
			}

			require.NoError(t, outbox.Atomically(t.Context(), func(ctx context.Context) error {
				if err := publish(ctx, "open"); err != nil {
					return err
				}
				mark, err := gormtx.New(db).SafeMark(t.Context())
				require.NoError(t, err)
				require.Equal(t, mark.Time.IsZero(), mark.Missing != "")
				if db.Name() == "mysql" {
					require.Contains(t, mark.Missing, "of the fence")
				}
				return nil
			}))
			mark, err := gormtx.New(db).SafeMark(t.Context())
			require.NoError(t, err)
			require.Empty(t, mark.Missing)
		})
	}
}
