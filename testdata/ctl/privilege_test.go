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
