package ctl

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/persistence"
)

// bury makes dead letters of events of as many users.
func (s *situation) bury(n int) []events.Event {
	s.Helper()
	var evts []events.Event
	for i := range n {
		evt := event(suspended)
		evt.AggregateID = string(rune('a' + i))
		evts = append(evts, evt)
	}
	s.publish(evts...)
	s.settle(s.dispatcher(map[string]error{"revoke-api-keys": events.Permanent(errors.New("no such user\nin the directory")), "audit-log": nil}), evts[n-1])
	return evts
}

func TestADeadLetter(t *testing.T) {
	t.Parallel()
	onServers(t, func(s *situation) {
		evt := s.bury(1)[0]
		require.Equal(s, 3, s.ask("why", evt.ID).code)
		require.Zero(s, s.ask("dead", "list", "--state", "dead").code)
		shown := s.ask("dead", "show", evt.ID, "revoke-api-keys")
		require.NotContains(s, shown.out, "spam", "a payload is shown on demand only")
		require.Zero(s, s.ask("dead", "show", evt.ID, "revoke-api-keys", "--payload").code)
		require.Zero(s, s.ask("dead", "requeue", evt.ID, "revoke-api-keys").code)
		require.Equal(s, 1, s.ask("dead", "requeue", evt.ID, "revoke-api-keys").code)
		require.Equal(s, 3, s.ask("why", evt.ID).code)

		// The dispatcher replays it: outboxctl has no handlers.
		d := s.dispatcher(map[string]error{"revoke-api-keys": nil, "audit-log": nil})
		s.eventually("it is replayed", func() bool {
			_, err := d.RunOnce(s.Context(), 100)
			require.NoError(s, err)
			l, err := s.outbox.GetDeadLetter(s.Context(), persistence.Marker{Event: s.cursorOf(evt), Handler: "revoke-api-keys"})
			require.NoError(s, err)
			return l.State == persistence.DeadLetterReplayed
		})
		require.Zero(s, s.ask("why", evt.ID).code)
		require.Equal(s, 1, s.ask("dead", "discard", evt.ID, "revoke-api-keys").code)
		require.Equal(s, 1, s.ask("dead", "show", events.NewID()).code)
		s.golden("dead-letter")
	})
}

func TestARequeueNamesAHandlerThatNobodySubscribes(t *testing.T) {
	t.Parallel()
	onServers(t, func(s *situation) {
		evts := s.bury(2)
		asked := s.ask("dead", "requeue", evts[0].ID, "revoke-api-keys")
		require.NotContains(s, asked.out, "No dispatcher subscribes")
		cursors, err := s.outbox.ListCursors(s.Context())
		require.NoError(s, err)
		for _, c := range cursors {
			require.NoError(s, s.outbox.Forget(s.Context(), c.Lease.Dispatcher))
		}
		asked = s.ask("dead", "requeue", "--all", "--yes")
		require.Zero(s, asked.code)
		require.Contains(s, asked.out, evts[1].ID)
		require.Contains(s, asked.out, `No dispatcher subscribes handler "revoke-api-keys" of "`)
	})
}

func TestManyDeadLetters(t *testing.T) {
	t.Parallel()
	onServers(t, func(s *situation) {
		evts := s.bury(3)
		require.Zero(s, s.ask("dead", "list", "--limit", "2").code)
		var page struct {
			Letters []struct{ Event persistence.Cursor }
			After   string
		}
		require.NoError(s, json.Unmarshal([]byte(s.call("dead", "list", "--limit", "2", "--json").out), &page))
		require.Len(s, page.Letters, 2)
		next := s.call("dead", "list", "--limit", "2", "--after", page.After)
		require.Contains(s, next.out, evts[2].ID)
		require.NotContains(s, next.out, evts[1].ID)
		require.NotContains(s, next.out, "--after")

		require.Zero(s, s.ask("dead", "discard", "--all", "--aggregate-id", "a", "--yes").code)
		require.Equal(s, 1, s.askWith("no\n", "dead", "requeue", "--all", "--handler", "revoke-api-keys").code)
		require.Zero(s, s.askWith("2\n", "dead", "requeue", "--all", "--handler", "revoke-api-keys").code)
		require.Zero(s, s.ask("dead", "list", "--state", "requeued").code)
		require.Equal(s, 2, s.ask("dead", "discard").code)
		require.Equal(s, 2, s.call("dead", "discard", evts[0].ID, "--all").code)
		require.Equal(s, 2, s.call("dead", "discard", evts[0].ID, "--handler", "x").code)
		require.Equal(s, 2, s.call("dead", "list", "--state", "alive").code)
		require.Equal(s, 2, s.call("dead", "list", "--after", "yesterday").code)
		s.golden("dead-letters")
		require.Equal(s, 3, strings.Count(s.call("dead", "list").out, "revoke-api-keys"))
	})
}
