package ctl

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/persistence"
	"github.com/onward-go/outbox/sqltx"
	"github.com/onward-go/outbox/testdata/matrix"
	"github.com/onward-go/outbox/testdata/servers"
)

// everyAnswer calls each command that answers with a document, in an outbox with
// an event that is delivered and a dead letter of another one.
func everyAnswer(delivered, dead events.Event) map[int][][]string {
	return map[int][][]string{
		0: {
			{"why", delivered.ID}, {"cursor", "list"}, {"dead", "list"}, {"dead", "show", dead.ID}, {"dead", "show", dead.ID, "--payload"},
			{"migrate", "up"}, {"migrate", "status"}, {"migrate", "print"}, {"retention", "plan", "--keep", "90d"}, {"retention", "run", "--keep", "90d"},
			{"dead", "requeue", dead.ID}, {"dead", "requeue", "--all", "--yes"}, {"dead", "discard", dead.ID}, {"dead", "discard", "--all", "--yes"},
			{"cursor", "rewind", "default", "--to", "beginning", "--yes"}, {"status"}, {"cursor", "forget", "default", "--yes"},
		},
		3: {{"why", events.NewID()}, {"status"}},
	}
}

// buryOne has one event delivered and another one become a dead letter.
func (s *situation) buryOne() (delivered, dead events.Event) {
	s.Helper()
	delivered = event(suspended)
	s.publish(delivered)
	s.settle(s.dispatcher(map[string]error{"revoke-api-keys": nil, "audit-log": nil}), delivered)
	return delivered, s.bury(1)[0]
}

func TestEveryAnswerCanBeJSON(t *testing.T) {
	t.Parallel()
	onServers(t, func(s *situation) {
		delivered, dead := s.buryOne()
		all := everyAnswer(delivered, dead)
		for _, code := range []int{3, 0} {
			for _, args := range all[code] {
				a := s.call(append(args, "--json")...)
				require.Equal(s, code, a.code, "%s\n%s%s", args, a.out, a.err)
				var document any
				require.NoError(s, json.Unmarshal([]byte(a.out), &document), "%s\n%s", args, a.out)
				require.NotEmpty(s, document, "%s", args)
				require.Empty(s, a.err)
			}
		}
	})
}

// Behind a pooler that hands out a server connection for a transaction at a time,
// everything works, too.
func TestBehindATransactionPooler(t *testing.T) {
	t.Parallel()
	for _, server := range kinds() {
		if server.Kind != servers.Postgres {
			continue
		}
		t.Run(server.Name, func(t *testing.T) {
			t.Parallel()
			s := newSituation(t, server)
			require.NoError(t, s.outbox.Migrate(t.Context()))
			delivered, dead := s.buryOne()
			s.dsn = servers.PgBouncer(t, s.dsn)
			all := everyAnswer(delivered, dead)
			for _, code := range []int{3, 0} {
				for _, args := range all[code] {
					a := s.call(args...)
					require.Equal(t, code, a.code, "%s\n%s%s", args, a.out, a.err)
				}
			}
		})
	}
}

// The tables may have a prefix, and be in a schema that is not on the search path.
func TestTheTablesMayBeNamed(t *testing.T) {
	t.Parallel()
	for _, server := range kinds() {
		t.Run(server.Name, func(t *testing.T) {
			t.Parallel()
			s := newSituation(t, server)
			naming := []string{"--prefix", "iam_"}
			options := []sqltx.Option{sqltx.WithTablePrefix("iam_")}
			if server.Schemas {
				naming = append(naming, "--schema", "Elsewhere")
				options = append(options, sqltx.WithSchema("Elsewhere"))
			}
			require.Zero(t, s.call(append(naming, "migrate", "up")...).code)
			s.outbox = sqltx.New(s.pool, sqltx.Dialect(s.dialect()), options...)
			evt := event(suspended)
			s.publish(evt)
			s.settle(s.dispatcher(map[string]error{"revoke-api-keys": nil}), evt)
			require.Zero(t, s.call(append(naming, "why", evt.ID)...).code)
			require.Zero(t, s.call(append(naming, "status")...).code)
			require.Equal(t, 1, s.call("status").code, "there are no other tables")
			require.Equal(t, 2, s.call("status", "--prefix", "no prefix").code)
			require.Equal(t, 2, s.call("status", "--timeout", "-1s").code)
		})
	}
}

// Who connects to a standby is told so: what producers hold open cannot be seen
// there.
func TestAStandbyServer(t *testing.T) {
	t.Parallel()
	for _, server := range kinds() {
		if server.Kind == nil || server.Schemas {
			continue // matrix has a standby of PostgreSQL's answer
		}
		t.Run(server.Name, func(t *testing.T) {
			t.Parallel()
			s := standby(t, server)
			a := s.call("status")
			require.Equal(t, 1, a.code)
			require.Contains(t, a.err, persistence.ErrNotPrimary.Error())
			require.Contains(t, a.err, "let the DSN name the primary")
		})
	}
}

// standby is an outbox on a server of its own that has become read-only.
func standby(t *testing.T, server matrix.Server) *situation {
	t.Helper()
	own := servers.Private(t, server.Kind)
	server.New = func(t testing.TB) string { return servers.CreateDatabase(t, own) }
	s := newSituation(t, server)
	require.NoError(t, s.outbox.Migrate(t.Context()))
	s.exec("SET GLOBAL read_only = ON")
	t.Cleanup(func() {
		_, err := s.pool.Exec("SET GLOBAL read_only = OFF")
		require.NoError(t, err)
	})
	return s
}
