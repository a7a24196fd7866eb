package ctl

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/persistence"
	"github.com/onward-go/outbox/schema"
)

func TestCursorsAreMovedAndForgotten(t *testing.T) {
	t.Parallel()
	onServers(t, func(s *situation) {
		require.Zero(s, s.ask("cursor", "list").code)
		first, second := event(suspended), event(suspended)
		s.publish(first, second)
		s.settle(s.dispatcher(map[string]error{"revoke-api-keys": nil}), second)
		cursor := func() persistence.Cursor {
			state, err := s.outbox.Load(s.Context(), events.DefaultName)
			require.NoError(s, err)
			return state.Cursor
		}
		require.Equal(s, 1, s.askWith("yes\n", "cursor", "rewind", "default", "--to", "beginning").code)
		require.Equal(s, s.cursorOf(second), cursor(), "nothing was done")
		require.Zero(s, s.askWith("default\n", "cursor", "rewind", "default", "--to", "beginning").code)
		require.True(s, cursor().IsZero())
		require.Zero(s, s.ask("cursor", "rewind", "default", "--to", s.cursorOf(first).String(), "--yes").code)
		require.Equal(s, s.cursorOf(first), cursor())
		require.Equal(s, 1, s.ask("cursor", "rewind", "other", "--to", "beginning", "--yes").code)
		require.Equal(s, 2, s.ask("cursor", "rewind", "default").code)
		require.Equal(s, 2, s.call("cursor", "rewind", "default", "--to", "then").code)
		require.Equal(s, 1, s.call("cursor", "rewind", "default", "--to", "beginning", "--json").code, "JSON is not confirmed by typing")

		require.Equal(s, 1, s.ask("cursor", "forget", "default").code)
		require.Equal(s, s.cursorOf(first), cursor())
		lease, err := s.outbox.Acquire(s.Context(), events.DefaultName, "iam-1", time.Hour)
		require.NoError(s, err)
		require.Equal(s, 1, s.call("cursor", "forget", "default", "--yes").code, "it is at work")
		require.Equal(s, s.cursorOf(first), cursor())
		require.Zero(s, s.call("cursor", "forget", "default", "--yes", "--force").code)
		require.ErrorIs(s, s.outbox.Release(s.Context(), lease), persistence.ErrLeaseLost)
		require.NoError(s, s.outbox.Create(s.Context(), events.DefaultName, s.cursorOf(first)))
		require.NoError(s, s.outbox.Register(s.Context(), events.DefaultName, persistence.Subscription{EventType: suspended, Handler: "revoke-api-keys"}))
		require.Zero(s, s.ask("cursor", "forget", "default", "--yes").code)
		require.Equal(s, 1, s.ask("cursor", "forget", "default", "--yes").code)
		s.golden("cursor")
	})
}

func TestTablesAreMade(t *testing.T) {
	t.Parallel()
	for _, server := range kinds() {
		t.Run(server.Name, func(t *testing.T) {
			t.Parallel()
			s := newSituation(t, server)
			require.Equal(s, 3, s.ask("migrate", "status").code)
			require.Equal(s, 1, s.ask("why", events.NewID()).code)
			require.Zero(s, s.ask("migrate", "up").code)
			require.Zero(s, s.ask("migrate", "up").code, "it can be run again")
			require.Zero(s, s.ask("migrate", "status").code)
			s.publish(event(suspended))
			s.exec(fmt.Sprintf("INSERT INTO outbox_schema (version) VALUES (%d)", schema.Version+1))
			require.Equal(s, 3, s.ask("migrate", "status").code)
			require.Equal(s, 1, s.ask("migrate", "up").code)
			s.golden("migrate")
		})
	}
}

// What is printed makes the tables, through any tool.
func TestPrintedMigrationsMakeTheTables(t *testing.T) {
	t.Parallel()
	for _, server := range kinds() {
		t.Run(server.Name, func(t *testing.T) {
			t.Parallel()
			s := newSituation(t, server)
			printed := s.call("migrate", "print", "--dialect", server.Name)
			require.Zero(s, printed.code, printed.err)
			conn, err := s.pool.Conn(s.Context()) // MySQL's keep variables of the session
			require.NoError(s, err)
			for statement := range strings.SplitSeq(printed.out, ";\n\n") {
				if strings.TrimSpace(statement) != "" {
					_, err := conn.ExecContext(s.Context(), statement)
					require.NoError(s, err, statement)
				}
			}
			require.NoError(s, conn.Close())
			require.Zero(s, s.call("migrate", "status").code)
			s.publish(event(suspended))
			require.Empty(s, s.call("migrate", "print", "--dialect", "sqlite", "--from", fmt.Sprint(lastMigration(t))).out)
		})
	}
}

func TestAMissingPartition(t *testing.T) {
	t.Parallel()
	onServers(t, func(s *situation) {
		if !s.server.Partitions {
			s.Skip("cannot occur: there are no partitions")
		}
		evt := event(suspended)
		s.publish(evt)
		s.settle(s.dispatcher(map[string]error{"revoke-api-keys": nil}), evt)
		require.Zero(s, s.call("status").code)
		s.dropMonthsAhead()
		require.Equal(s, 3, s.ask("status").code)
		require.Zero(s, s.ask("retention", "plan", "--keep", "90d").code)
		require.Equal(s, 3, s.call("status").code, "a plan does nothing")
		require.Zero(s, s.ask("retention", "run", "--keep", "90d").code)
		require.Zero(s, s.ask("status").code)
		require.Zero(s, s.ask("retention", "plan", "--keep", "90d").code)
		s.golden(s.perServer("missing-partition"))
	})
}

// dropMonthsAhead leaves this month and an open-ended partition, as if retention
// had not run for months.
func (s *situation) dropMonthsAhead() {
	s.Helper()
	now := time.Now().UTC()
	month := func(n int) time.Time {
		return time.Date(now.Year(), now.Month()+time.Month(n), 1, 0, 0, 0, 0, time.UTC)
	}
	for _, table := range []string{"outbox", "outbox_idempotency"} {
		if !s.server.Schemas {
			s.exec(fmt.Sprintf("ALTER TABLE %s REORGANIZE PARTITION %s, %s, %s, pmax INTO (PARTITION pmax VALUES LESS THAN MAXVALUE)", table,
				month(1).Format("p2006_01"), month(2).Format("p2006_01"), month(3).Format("p2006_01")))
			continue
		}
		for n := 1; n <= 3; n++ {
			s.exec("DROP TABLE " + table + month(n).Format("_p2006_01"))
		}
		s.exec("DROP TABLE " + table + "_pmax")
		s.exec(fmt.Sprintf("CREATE TABLE %s_pmax PARTITION OF %[1]s FOR VALUES FROM ('%s') TO (MAXVALUE)", table, month(1).Format("2006-01-02 15:04:05Z07:00")))
	}
}

func TestRetentionKeepsWhatIsOwed(t *testing.T) {
	t.Parallel()
	onServers(t, func(s *situation) {
		require.Equal(s, 2, s.ask("retention", "run").code)
		old := s.cut()
		require.NoError(s, s.outbox.Create(s.Context(), "stopped", persistence.Cursor{}))
		require.Equal(s, 3, s.ask("retention", "plan", "--keep", "90d").code)
		require.Equal(s, 3, s.ask("retention", "run", "--keep", "90d").code)
		require.Zero(s, s.call("cursor", "rewind", "stopped", "--to", old.Add(time.Hour).Format(time.RFC3339), "--yes").code)
		require.Zero(s, s.ask("retention", "plan", "--keep", "90d").code)
		require.Zero(s, s.ask("retention", "run", "--keep", "90d").code)
		s.golden(s.perServer("owed"))
	})
}

// lastMigration is the number of the last migration.
func lastMigration(t *testing.T) int {
	t.Helper()
	all, err := schema.Render(schema.SQLite, schema.Naming{})
	require.NoError(t, err)
	return all[len(all)-1].Version
}
