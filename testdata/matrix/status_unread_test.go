package matrix

import (
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/gormtx"
	"github.com/onward-go/outbox/persistence"
)

// unread returns the parts that a status could not read.
func unread(status persistence.OutboxStatus) (parts []persistence.StatusPart) {
	for _, u := range status.Unread {
		parts = append(parts, u.Part)
	}
	slices.Sort(parts)
	return parts
}

// Whoever may not read a table is told the rest, and what is missing.
func TestAStatusWithoutAPrivilegeTellsTheRest(t *testing.T) {
	onRoles(t, func(t *testing.T, r *roles) {
		require.NoError(t, r.produce(r.connect("producer")))
		dispatcher := gormtx.New(r.connect("dispatcher"), r.options...)
		_, err := events.NewDispatcher(dispatcher, dispatcher, dispatcher, dispatcher).RunOnce(t.Context(), 1)
		require.NoError(t, err)
		whole, err := dispatcher.ReadStatus(t.Context())
		require.NoError(t, err)
		require.Empty(t, whole.Unread)
		for table, want := range map[string][]persistence.StatusPart{
			"outbox":               {persistence.StatusAfter},
			"outbox_cursors":       {persistence.StatusDispatchers},
			"outbox_subscriptions": {persistence.StatusBehind},
			"outbox_dead_letters":  {persistence.StatusDeadLetters},
			"outbox_attempts":      {persistence.StatusFailing},
			"outbox_fence":         {persistence.StatusMark, persistence.StatusProducers},
		} {
			if table == "outbox_fence" && r.server.Pgx {
				continue // there is none
			}
			role := "outbox_dispatcher" + r.suffix
			r.exec("REVOKE SELECT ON " + r.table(table) + " FROM " + role)
			outbox := gormtx.New(r.connect("dispatcher"), r.options...) // a pool that knows no privileges yet
			status, err := outbox.ReadStatus(t.Context())
			require.NoError(t, err, table)
			got := unread(status.OutboxStatus)
			if table == "outbox" && !r.server.Pgx { // MySQL hides the partitions, too
				want = append(want, persistence.StatusPartitions)
			}
			require.Equal(t, want, got, table)
			require.True(t, slices.ContainsFunc(status.Unread, func(u persistence.UnreadPart) bool { return strings.Contains(u.Error, "denied") }), table)
			require.False(t, status.Now.IsZero())
			require.Equal(t, table == "outbox_fence", status.Mark.IsZero())
			if table != "outbox_cursors" {
				require.Len(t, status.Dispatchers, 1)
			}
			standing, err := events.NewDispatcher(outbox, outbox, outbox, outbox).Status(t.Context())
			require.NoError(t, err)
			require.False(t, standing.New)
			require.Subset(t, unread(standing.OutboxStatus), want)
			r.exec("GRANT SELECT ON " + r.table(table) + " TO " + role)
		}
	})
}

// A table that somebody has locked keeps the rest from nobody.
func TestAStatusBesideALockTellsTheRest(t *testing.T) {
	for _, server := range Servers {
		if server.Kind == nil || server.Again {
			continue
		}
		t.Run(server.Name, func(t *testing.T) {
			dsn := server.New(t)
			db := Open(t, server.Open(dsn), &gorm.Config{Logger: logger.Discard})
			require.NoError(t, gormtx.New(db).Migrate(t.Context()))
			outbox := gormtx.New(Open(t, server.Open(impatient(t, server, dsn)), &gorm.Config{Logger: logger.Discard}))
			_, err := events.NewDispatcher(outbox, outbox, outbox, outbox).RunOnce(t.Context(), 1)
			require.NoError(t, err)
			require.NoError(t, db.Connection(func(conn *gorm.DB) error {
				lock, unlock := "LOCK TABLES outbox_dead_letters WRITE", "UNLOCK TABLES"
				if server.Pgx {
					lock, unlock = "BEGIN; LOCK TABLE outbox_dead_letters", "ROLLBACK"
				}
				for _, statement := range strings.Split(lock, "; ") {
					require.NoError(t, conn.Exec(statement).Error)
				}
				status, err := outbox.ReadStatus(t.Context())
				require.NoError(t, err)
				require.Equal(t, []persistence.StatusPart{persistence.StatusDeadLetters}, unread(status.OutboxStatus))
				require.Contains(t, status.Unread[0].Error, "timeout", "of the lock")
				require.Len(t, status.Dispatchers, 1)
				return conn.Exec(unlock).Error
			}))
		})
	}
}

// impatient returns a DSN whose sessions wait for a lock for a moment only.
func impatient(t *testing.T, server Server, dsn string) string {
	if server.Pgx {
		u, err := url.Parse(dsn)
		require.NoError(t, err)
		query := u.Query()
		query.Set("lock_timeout", "200ms")
		u.RawQuery = query.Encode()
		return u.String()
	}
	config, err := mysql.ParseDSN(dsn)
	require.NoError(t, err)
	if config.Params == nil {
		config.Params = map[string]string{}
	}
	config.Params["lock_wait_timeout"] = "1"
	return config.FormatDSN()
}
