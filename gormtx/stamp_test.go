package gormtx_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/persistence"
)

// On SQLite each stamp is above all before it, wherever the clock stands.
func TestSQLiteStampsRiseWhateverTheClock(t *testing.T) {
	db, outbox := migrated(t)
	ahead := time.Now().Add(time.Hour).UnixMicro()
	require.NoError(t, db.Exec("INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, created_time) VALUES ('z', 'a', '1', 't', ?)", ahead).Error)
	publish := func(evts ...events.Event) {
		require.NoError(t, outbox.Atomically(t.Context(), func(ctx context.Context) error {
			return events.NewPublisher(outbox).Publish(ctx, evts...)
		}))
	}
	publish(event("y"))
	publish(event("x"), event("w"))
	require.NoError(t, db.Exec("INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type) VALUES ('v', 'a', '1', 't')").Error)
	require.Equal(t, []string{"z", "y", "x", "w", "v"}, published(t, db))

	// Also above what a cursor has passed and retention has dropped, whatever
	// an operator did to the cursor since; but not above where one only starts.
	n, err := events.NewDispatcher(outbox, outbox, outbox, outbox).RunOnce(t.Context(), 10)
	require.NoError(t, err)
	require.Equal(t, 5, n)
	require.NoError(t, outbox.Rewind(t.Context(), events.DefaultName, persistence.Cursor{}))
	require.NoError(t, outbox.Create(t.Context(), "far", persistence.Cursor{CreatedTime: time.Now().AddDate(50, 0, 0)}))
	require.NoError(t, db.Exec("DELETE FROM outbox").Error)
	publish(event("b"))
	publish(event("a"), event("A"))
	require.Equal(t, []string{"b", "a", "A"}, published(t, db))
	var first int64
	require.NoError(t, db.Raw("SELECT min(created_time) FROM outbox").Scan(&first).Error)
	require.Greater(t, first, ahead)
	require.Less(t, first, time.Now().AddDate(1, 0, 0).UnixMicro())
}

func TestARowWithAnEmptyTimeIsRefused(t *testing.T) {
	db, _ := migrated(t)
	require.Error(t, db.Exec("INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, created_time) VALUES ('z', 'a', '1', 't', 0)").Error)
}
