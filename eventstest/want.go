package eventstest

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/onward-go/outbox/events"
)

// Want fails the test unless got are exactly these events, in this order. An
// empty field of a wanted event matches anything.
func Want(t testing.TB, got []events.Event, want ...events.Event) {
	t.Helper()
	matched := len(got) == len(want)
	for i := 0; matched && i < len(got); i++ {
		matched = matches(got[i], want[i])
	}
	if !matched {
		t.Fatalf("got %d events, want %d:\n got: %s\nwant: %s", len(got), len(want), list(got), list(want))
	}
}

func matches(got, want events.Event) bool {
	for _, field := range [][2]string{
		{got.ID, want.ID}, {got.Type, want.Type}, {got.AccountID, want.AccountID}, {got.AggregateType, want.AggregateType},
		{got.AggregateID, want.AggregateID}, {got.DedupKey, want.DedupKey},
	} {
		if field[1] != "" && field[0] != field[1] {
			return false
		}
	}
	return (len(want.Payload) == 0 || bytes.Equal(got.Payload, want.Payload)) &&
		(want.CreatedTime.IsZero() || got.CreatedTime.Equal(want.CreatedTime))
}

func list(evts []events.Event) string {
	lines := make([]string, len(evts))
	for i, e := range evts {
		for _, field := range []struct{ name, value string }{
			{"id", e.ID}, {"type", e.Type}, {"account", e.AccountID}, {"aggregate", strings.Trim(e.AggregateType+"/"+e.AggregateID, "/")},
			{"dedup key", e.DedupKey}, {"payload", string(e.Payload)},
		} {
			if field.value != "" {
				lines[i] += fmt.Sprintf(" %s=%.200q", field.name, field.value)
			}
		}
	}
	if len(lines) == 0 {
		return "none"
	}
	return strings.Join(lines, "\n     ")
}
