package matrix

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"
	"gorm.io/driver/mysql"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/gormtx"
	"github.com/onward-go/outbox/persistence"
)

// hostile are names that are all different, though one collation or another
// takes some of them for equal, and that a narrow character set cannot hold.
var hostile = []string{
	"a", "A", "á", "a\u0301", "ä", "ae", "æ", "a ", "a  ", " a", " ", "  ", "a\t", "a\u00a0", "ａ", "ß", "ss", "ı", "i", "I", "İ",
	"😀", "😁", "👨‍👩‍👧", "\U0010ffff", "\ufffd", "\u200b", "a\u200b", "\ufeffa", "\u0081", "'", `"`, `\`, `\'`, "`", "%", "_", "?", "?1", ";--", "/*", "NULL",
	"\n", "\r\n", "\x01", "\x1a", strings.Repeat("😀", 32), strings.Repeat("x", 128),
}

// In a database whose defaults are as bad as they get, all text is kept exactly,
// and names that differ at all are different.
func TestMySQLKeepsHostileTextExactly(t *testing.T) {
	t.Parallel()
	onMySQL(t, func(t *testing.T, dsn string) {
		config, err := driver.ParseDSN(dsn)
		require.NoError(t, err)
		admin := Open(t, mysql.Open(dsn), &gorm.Config{Logger: logger.Discard})
		require.NoError(t, admin.Exec("ALTER DATABASE "+config.DBName+" CHARACTER SET latin1 COLLATE latin1_general_ci").Error)
		for _, mode := range []struct{ prefix, params string }{
			{"strict_", ""},
			{"lax_", "?sql_mode=%27%27"},
			{"interpolated_", "?interpolateParams=true&sql_mode=%27NO_BACKSLASH_ESCAPES%27"},
			{"ansi_", "?default_storage_engine=MyISAM&sql_mode=%27ANSI%27&collation=utf8mb4_general_ci"},
		} {
			db := Open(t, mysql.Open(dsn+mode.params), &gorm.Config{Logger: logger.Discard})
			outbox := gormtx.New(db, gormtx.WithTablePrefix(mode.prefix))
			require.NoError(t, outbox.Migrate(t.Context()))
			event := keepsRecords(t, outbox)
			keepsMarkers(t, outbox, event.Cursor())
			keepsSidecar(t, outbox, event)
			var engines []string
			require.NoError(t, db.Raw("SELECT DISTINCT engine FROM information_schema.tables WHERE table_schema = DATABASE()").Scan(&engines).Error)
			require.Equal(t, []string{"InnoDB"}, engines)
		}
	})
}

// keepsRecords publishes every text in every field, alone and together, and
// returns one of the events.
func keepsRecords(t *testing.T, outbox *gormtx.Outbox) persistence.Record {
	var want []persistence.Record
	for _, text := range hostile {
		r := persistence.Record{ID: events.NewID(), AccountID: text, AggregateType: text, AggregateID: text, EventType: text, Payload: []byte(text + "\x00\xff" + text)}
		require.NoError(t, outbox.Atomically(t.Context(), func(ctx context.Context) error { return outbox.Append(ctx, r) }))
		want = append(want, r)
		r.ID = events.NewID()
		want = append(want, r)
	}
	require.NoError(t, outbox.Atomically(t.Context(), func(ctx context.Context) error {
		var batch []persistence.Record
		for i := 1; i < len(want); i += 2 {
			batch = append(batch, want[i])
		}
		return outbox.Append(ctx, batch...)
	}))
	page, err := outbox.ReadWindow(t.Context(), persistence.WindowRead{Limit: 1000})
	require.NoError(t, err)
	got := page.Records
	one := got[0]
	for i := range got {
		got[i].CreatedTime = time.Time{}
	}
	byID := func(a, b persistence.Record) int { return strings.Compare(a.ID, b.ID) }
	slices.SortFunc(want, byID)
	slices.SortFunc(got, byID)
	require.Len(t, got, len(want))
	for i := range want {
		require.Equal(t, want[i], got[i], "%q", want[i].EventType)
	}
	return one
}

func keepsMarkers(t *testing.T, outbox *gormtx.Outbox, event persistence.Cursor) {
	var markers []persistence.Marker
	for _, name := range hostile {
		markers = append(markers, persistence.Marker{Event: event, Handler: name})
	}
	for i, m := range markers { // one by one, so that none is taken for another
		applied, err := outbox.Applied(t.Context(), markers[i:]...)
		require.NoError(t, err)
		require.NotContains(t, applied, true)
		require.NoError(t, outbox.Atomically(t.Context(), func(ctx context.Context) error {
			recorded, err := outbox.Record(ctx, m)
			require.Equal(t, []bool{true}, recorded, "%q", m.Handler)
			return err
		}))
	}
	applied, err := outbox.Applied(t.Context(), markers...)
	require.NoError(t, err)
	require.NotContains(t, applied, false)
}

func keepsSidecar(t *testing.T, outbox *gormtx.Outbox, event persistence.Record) {
	ctx := t.Context()
	for _, name := range hostile {
		_, err := outbox.Load(ctx, name)
		require.ErrorIs(t, err, persistence.ErrNotFound, "%q", name)
		require.NoError(t, outbox.Create(ctx, name, persistence.Cursor{}))
		lease, err := outbox.Acquire(ctx, name, name, time.Hour)
		require.NoError(t, err)
		require.Equal(t, name, lease.Owner)
		_, err = outbox.Acquire(ctx, name, name+"!", time.Hour)
		require.ErrorIs(t, err, persistence.ErrLeaseHeld)
		attempt, err := outbox.RecordFailure(ctx, lease, persistence.Failure{Event: event.Cursor(), Handler: name, Error: name})
		require.NoError(t, err)
		require.Equal(t, 1, attempt.Attempts)
		require.NoError(t, outbox.Atomically(ctx, func(ctx context.Context) error {
			return outbox.AddDeadLetter(ctx, lease, persistence.DeadLetter{
				Record: event, Dispatcher: name, Handler: name, Attempts: 1, LastError: name, State: persistence.DeadLetterDead,
			})
		}))
		state, err := outbox.Load(ctx, name)
		require.NoError(t, err)
		require.Len(t, state.Attempts, 1)
		require.Equal(t, []string{name, name, name}, []string{state.Lease.Dispatcher, state.Attempts[0].Handler, state.Attempts[0].LastError})
	}
	for _, name := range hostile {
		for _, query := range []persistence.DeadLetterQuery{{Dispatcher: name, Limit: 100}, {Handler: name, Limit: 100}} {
			letters, err := outbox.ListDeadLetters(ctx, query)
			require.NoError(t, err)
			require.Len(t, letters, 1, "%q", name)
			require.Equal(t, []string{name, name, name}, []string{letters[0].Dispatcher, letters[0].Handler, letters[0].LastError})
			require.Equal(t, event.AccountID, letters[0].Record.AccountID)
		}
	}
	states, err := outbox.ListCursors(ctx)
	require.NoError(t, err)
	require.Len(t, states, len(hostile))
}
