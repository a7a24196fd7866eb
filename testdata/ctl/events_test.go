package ctl

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/events"
)

func TestEventsAreListed(t *testing.T) {
	t.Parallel()
	onServers(t, func(s *situation) {
		require.Zero(s, s.ask("events").code)
		suspendedOne, renamed, other := event(suspended), event("iam.v1.UserRenamed"), event(suspended)
		renamed.AggregateID, other.AccountID = "u-2", ""
		renamed.Payload, other.Payload = []byte("plain\ttext"), []byte{0xff, 0}
		s.publish(suspendedOne, renamed, other)
		require.Zero(s, s.ask("events").code)
		require.Zero(s, s.ask("events", "--limit", "2", "--payload").code)
		require.Zero(s, s.ask("events", "--since", "1h", "--type", suspended, "--account", "acme").code)
		require.Zero(s, s.ask("events", "--aggregate-type", "User", "--aggregate-id", "u-2", "--json", "--payload").code)
		require.Equal(s, 3, s.ask("events", "--since", "1h", "--aggregate-id", "u-2", "--most-rows", "1").code)
		require.Equal(s, 2, s.ask("events", "--limit", "0").code)
		require.Equal(s, 2, s.call("events", "--since", "noon").code)
		s.golden("events")

		listed := s.call("events", "--json")
		require.NotContains(s, listed.out, "payload")
		require.Equal(s, []string{suspendedOne.ID, renamed.ID, other.ID}, idsOf(s, listed.out))
		require.Equal(s, []string{suspendedOne.ID}, idsOf(s, s.call("events", "--json", "--since", "1h", "--limit", "1").out))
		require.Equal(s, []string{other.ID}, idsOf(s, s.call("events", "--json", "--limit", "1").out))
		require.Empty(s, s.call("events", "--json", "--type", "iam").out)
	})
}

// idsOf returns the ids of events that are printed as JSON, a line each.
func idsOf(s *situation, lines string) (ids []string) {
	s.Helper()
	for line := range strings.Lines(lines) {
		var e struct{ ID string }
		require.NoError(s, json.Unmarshal([]byte(line), &e))
		ids = append(ids, e.ID)
	}
	return ids
}

// Following passes nothing by: what commits late shows late, and nothing twice.
func TestEventsAreFollowed(t *testing.T) {
	t.Parallel()
	onServers(t, func(s *situation) {
		before := []events.Event{event(suspended), event(suspended), event("iam.v1.UserRenamed")}
		s.publish(before...)
		listed := s.following("--limit", "1", "--type", suspended)
		since := s.following("--since", "1h", "--type", suspended)
		require.Equal(s, before[1].ID, listed())
		require.Equal(s, before[0].ID, since())
		require.Equal(s, before[1].ID, since())

		late := event(suspended)
		if s.server.OneWriter {
			s.publish(late)
			require.Equal(s, late.ID, listed())
			require.Equal(s, late.ID, since())
			return
		}
		early := event(suspended)
		s.open(late, func() {
			s.publish(early)
			require.Equal(s, early.ID, listed())
			require.Equal(s, early.ID, since())
		})
		require.Equal(s, late.ID, listed())
		require.Equal(s, late.ID, since())
	})
}

// following runs outboxctl until the test ends, when it has to end by itself after
// an interrupt, and returns what waits for the next event.
func (s *situation) following(args ...string) (next func() string) {
	s.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.Context()), patience)
	cmd := exec.CommandContext(ctx, program, append([]string{"events", "--follow", "--json", "--every", "10ms"}, args...)...)
	cmd.Env = append(os.Environ(), "OUTBOX_DSN="+s.dsn)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(s, err)
	require.NoError(s, cmd.Start())
	lines := bufio.NewScanner(out)
	s.Cleanup(func() {
		defer cancel()
		require.NoError(s, cmd.Process.Signal(syscall.SIGINT))
		for lines.Scan() {
			s.Errorf("an event that was not expected: %s", lines.Text())
		}
		require.NoError(s, cmd.Wait(), "an interrupt is how following ends")
	})
	return func() string {
		s.Helper()
		require.True(s, lines.Scan(), "no event within %s", patience)
		return idsOf(s, lines.Text())[0]
	}
}
