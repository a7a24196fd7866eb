package cdc

import (
	"bytes"
	"context"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/onward-go/outbox/persistence"
)

// Whatever the library does, the log has the inserts of the committed events
// and the statements that keep the partitions, and nothing else.
func TestTheLogHoldsNothingButInserts(t *testing.T) {
	onEach(t, func(t *testing.T, target target, db database) {
		w := newWorkload(db)
		w.publishLongAgo(t)
		w.publish(t)
		w.dispatch(t)
		want := w.records(t)
		retire(t, db)
		w.atomically(t, func(ctx context.Context) error { return w.change(ctx, "c", "changed", 2) })
		want = append(want, afterRetention(t, w, want)...)

		for name, engine := range db.engines {
			t.Run(name, func(t *testing.T) {
				var consumer journal
				changes, err := engine.CatchUp(t.Context(), &consumer)
				require.NoError(t, err)
				require.NotEmpty(t, changes, "the drop of a partition shows")
				for _, c := range changes {
					require.Equal(t, Statement, c.Kind, c.Text)
					require.Regexp(t, target.retention, c.Text)
				}
				require.ElementsMatch(t, ids(want), consumer.ids())
				consumed := byID(consumer.records)
				for _, r := range want {
					got := consumed[r.ID]
					require.True(t, bytes.Equal(r.Payload, got.Payload), "the payload of %s", r.ID)
					got.Payload = r.Payload
					require.Equal(t, r, got)
				}
				for aggregate, got := range byAggregate(consumer.records) {
					require.True(t, slices.IsSorted(got), "%s: %v", aggregate, got)
				}
				order := consumer.ids()
				require.Less(t, slices.Index(order, "early-0001-0000"), slices.Index(order, "late-0001-0000"), "the order is that of commits")
			})
		}
	})
}

var fromMigration = regexp.MustCompile(`^outbox_p(202[1-9]|20[3-9]\d)_\d\d$`)

// The control: an engine reports what somebody else does to the table.
func TestTheLogShowsWhatSomebodyElseDoes(t *testing.T) {
	onEach(t, func(t *testing.T, target target, db database) {
		w := newWorkload(db)
		w.publishLongAgo(t)
		require.NoError(t, db.Connection(func(session *gorm.DB) error {
			for _, statement := range target.control {
				require.NoError(t, session.Exec(statement).Error, statement)
			}
			return nil
		}))
		for name, engine := range db.engines {
			t.Run(name, func(t *testing.T) {
				changes, err := engine.CatchUp(t.Context(), &journal{})
				require.NoError(t, err)
				for i, c := range changes {
					if fromMigration.MatchString(c.Text) {
						changes[i].Text = "the months from the migration"
					}
				}
				require.Equal(t, target.reported[name], slices.CompactFunc(changes, func(a, b Change) bool {
					return a == b && a.Kind == Truncate
				}))
			})
		}
	})
}

// afterRetention returns what the table holds beside what was seen before.
func afterRetention(t *testing.T, w *workload, before []persistence.Record) (added []persistence.Record) {
	seen := byID(before)
	for len(seen)+len(added) < w.count() { // the safe mark may follow in steps
		all, err := w.db.outbox.ReadAfter(t.Context(), persistence.Cursor{}, 10_000)
		require.NoError(t, err)
		require.NotContains(t, ids(all), "old-0001", "the partition is gone")
		added = slices.DeleteFunc(all, func(r persistence.Record) bool { _, known := seen[r.ID]; return known })
	}
	return added
}

func byID(records []persistence.Record) map[string]persistence.Record {
	all := map[string]persistence.Record{}
	for _, r := range records {
		all[r.ID] = r
	}
	return all
}

// byAggregate returns the ids of each aggregate's records, in order.
func byAggregate(records []persistence.Record) map[string][]string {
	all := map[string][]string{}
	for _, r := range records {
		all[r.AggregateID] = append(all[r.AggregateID], r.ID)
	}
	return all
}

// A consumer that fails gets the same transaction again, and none is left out.
func TestAnEngineGoesOnAtTheConsumersPosition(t *testing.T) {
	onEach(t, func(t *testing.T, _ target, db database) {
		w := newWorkload(db)
		w.publish(t)
		for name, engine := range db.engines {
			t.Run(name, func(t *testing.T) {
				consumer := journal{room: 60}
				for range 2 {
					_, err := engine.CatchUp(t.Context(), &consumer)
					require.ErrorIs(t, err, errRefused)
				}
				require.NotEmpty(t, consumer.records)
				consumer.room = 0
				_, err := engine.CatchUp(t.Context(), &consumer)
				require.NoError(t, err)
				require.Len(t, byID(consumer.records), w.count())
				require.Len(t, consumer.records, w.count(), "what was taken over does not come again")

				// The rest of the database moves the position, and only that.
				position := consumer.position
				require.NoError(t, db.Exec("UPDATE accounts SET changes = changes + 1").Error)
				_, err = engine.CatchUp(t.Context(), &consumer)
				require.NoError(t, err)
				require.NotEqual(t, position, consumer.position)
				require.Len(t, consumer.records, w.count())
			})
		}
	})
}
