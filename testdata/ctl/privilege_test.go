package ctl

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/events"
)

// Who may read, and no more, may ask everything and change nothing.
func TestAUserWhoMayOnlyLook(t *testing.T) {
	t.Parallel()
	onServers(t, func(s *situation) {
		if s.server.Kind == nil {
			s.Skip("cannot occur: SQLite has no users")
		}
		evt := s.bury(1)[0]
		owner := s.dsn
		s.dsn = s.reader()
		hidden := event(suspended)
		s.open(hidden, func() {
			a := s.call("why", hidden.ID)
			require.Equal(s, 3, a.code, a.err)
			require.Contains(s, a.out, "not-visible")
		})
		for want, all := range map[int][][]string{
			0: {{"cursor", "list"}, {"events"}, {"dead", "list"}, {"dead", "show", evt.ID}, {"migrate", "status"}},
			3: {{"status"}, {"why", evt.ID}, {"why", events.NewID()}},
			1: {{"dead", "requeue", evt.ID}, {"cursor", "forget", "default", "--yes"}, {"cursor", "rewind", "default", "--to", "beginning", "--yes"}},
		} {
			for _, args := range all {
				a := s.call(args...)
				require.Equal(s, want, a.code, "%s\n%s%s", args, a.out, a.err)
			}
		}
		s.dsn = owner
		require.Zero(s, s.call("dead", "requeue", evt.ID).code, "the letter is as it was")
	})
}

// A part that the user may not read is named, and the rest is shown.
func TestAUserWhoMayNotReadATable(t *testing.T) {
	t.Parallel()
	onServers(t, func(s *situation) {
		if s.server.Kind == nil {
			s.Skip("cannot occur: SQLite has no users")
		}
		s.bury(1)
		reader := s.reader()
		name, _, _ := strings.Cut(strings.TrimPrefix(reader, "postgres://"), "@")
		if s.server.Schemas {
			s.exec("REVOKE SELECT ON outbox_dead_letters FROM " + name)
		} else {
			s.mysqlGrantAllBut(name, "outbox_dead_letters")
		}
		s.dsn = reader
		a := s.call("status")
		require.Equal(s, 3, a.code, a.err)
		require.Regexp(s, `letters +could not be read`, a.out)
		require.Contains(s, a.out, `! The part "dead letters" could not be read: `)
		require.Contains(s, a.out, "dispatcher  default")
		a = s.call("status", "--json")
		require.Equal(s, 3, a.code, a.err)
		require.Contains(s, a.out, `"part": "dead_letters"`)
		a = s.call("status", "default", "nobody")
		require.Equal(s, 1, a.code)
		require.Contains(s, a.out, "dispatcher  default")
		require.Contains(s, a.err, `dispatcher "nobody": not found`)
	})
}

// mysqlGrantAllBut takes away the right to read the database, and gives that to read
// each of its tables but one.
func (s *situation) mysqlGrantAllBut(name, but string) {
	s.Helper()
	var database string
	require.NoError(s, s.pool.QueryRowContext(s.Context(), "SELECT DATABASE()").Scan(&database))
	s.exec(fmt.Sprintf("REVOKE SELECT ON %s.* FROM %s", database, name))
	rows, err := s.pool.QueryContext(s.Context(), "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name <> '"+but+"'")
	require.NoError(s, err)
	var tables []string
	for rows.Next() {
		var table string
		require.NoError(s, rows.Scan(&table))
		tables = append(tables, table)
	}
	require.NoError(s, rows.Err())
	for _, table := range tables {
		s.exec(fmt.Sprintf("GRANT SELECT ON %s.%s TO %s", database, table, name))
	}
}

// reader makes a user who may read, and returns the DSN to connect as that one.
func (s *situation) reader() (dsn string) {
	s.Helper()
	random := make([]byte, 6)
	_, _ = rand.Read(random)
	name := "reader_" + hex.EncodeToString(random)
	if s.server.Schemas {
		s.exec("CREATE ROLE " + name + " LOGIN")
		s.Cleanup(func() {
			_, err := s.pool.Exec("DROP OWNED BY " + name)
			require.NoError(s, err)
			_, err = s.pool.Exec("DROP ROLE " + name)
			require.NoError(s, err)
		})
		s.exec("GRANT SELECT ON ALL TABLES IN SCHEMA public TO " + name)
		return regexp.MustCompile(`//[^@]*@`).ReplaceAllString(s.dsn, "//"+name+"@")
	}
	var database string
	require.NoError(s, s.pool.QueryRowContext(s.Context(), "SELECT DATABASE()").Scan(&database))
	s.exec("CREATE USER " + name)
	s.Cleanup(func() {
		_, err := s.pool.Exec("DROP USER " + name)
		require.NoError(s, err)
	})
	s.exec(fmt.Sprintf("GRANT SELECT ON %s.* TO %s", database, name))
	s.exec(fmt.Sprintf("GRANT UPDATE ON %s.outbox_fence TO %s", database, name))
	_, rest, found := strings.Cut(s.dsn, "@")
	require.True(s, found)
	return name + "@" + rest
}
