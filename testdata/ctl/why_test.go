package ctl

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/persistence"
)

func TestAnEventThatIsApplied(t *testing.T) {
	t.Parallel()
	onServers(t, func(s *situation) {
		evt := event(suspended)
		s.publish(evt)
		d := s.dispatcher(map[string]error{"revoke-api-keys": nil, "audit-log": nil})
		s.settle(d, evt)
		require.Zero(s, s.ask("why", evt.ID).code)
		s.golden("applied")

		var report struct {
			Verdict  string
			Handlers []struct{ Handler, State string }
		}
		require.NoError(s, json.Unmarshal([]byte(s.call("why", evt.ID, "--json").out), &report))
		require.Equal(s, "delivered", report.Verdict)
		require.Len(s, report.Handlers, 2)
		require.Equal(s, "applied", report.Handlers[0].State)
	})
}

func TestAHandlerInBackOff(t *testing.T) {
	t.Parallel()
	onServers(t, func(s *situation) {
		first, second := event(suspended), event(suspended)
		s.publish(first, second)
		d := s.dispatcher(map[string]error{"revoke-api-keys": errors.New("vault: connection refused"), "audit-log": nil}, events.WithBackoff(80*time.Minute, 80*time.Minute))
		s.eventually("the handler has failed", func() bool {
			_, _ = d.RunOnce(s.Context(), 100)
			failures, err := s.outbox.Failures(s.Context(), events.DefaultName, s.cursorOf(first))
			require.NoError(s, err)
			return len(failures) == 1
		})
		require.Equal(s, 3, s.ask("why", first.ID).code)
		require.Equal(s, 3, s.ask("why", second.ID).code)
		require.Equal(s, 3, s.ask("status").code)
		s.golden(s.perServer("back-off"))
	})
}

// cursorOf returns the position of an event that is committed.
func (s *situation) cursorOf(evt events.Event) persistence.Cursor {
	s.Helper()
	page, err := s.outbox.FindRecords(s.Context(), persistence.RecordQuery{ID: evt.ID, Limit: 1, MostRows: 10_000})
	require.NoError(s, err)
	require.Len(s, page.Records, 1)
	return page.Records[0].Cursor()
}

// perServer is the name of a golden file where a status shows partitions, and who
// a producer is.
func (s *situation) perServer(name string) string { return name + "-" + s.server.Name }

func TestAProducerThatIsOpen(t *testing.T) {
	t.Parallel()
	onServers(t, func(s *situation) {
		settled := event(suspended)
		s.publish(settled)
		s.settle(s.dispatcher(map[string]error{"revoke-api-keys": nil}), settled)
		evt := event(suspended)
		s.open(evt, func() {
			require.Equal(s, 3, s.ask("why", evt.ID).code)
			if !s.server.OneWriter { // nobody else's events wait, only the cursor does
				other := event(suspended)
				other.AggregateID = "u-2"
				s.publish(other)
				s.apply(other)
				require.Zero(s, s.ask("why", other.ID).code)
			}
			s.ask("status", "--max-lag", "1ms")
		})
		require.Equal(s, 3, s.ask("why", evt.ID).code, "it waits, though it is visible now")
		s.golden(s.perServer("open-producer"))
	})
}

// apply delivers an event; the cursor need not come to it.
func (s *situation) apply(evt events.Event) {
	s.Helper()
	d, at := s.dispatcher(map[string]error{"revoke-api-keys": nil}), s.cursorOf(evt)
	s.eventually("the event is applied", func() bool {
		_, err := d.RunOnce(s.Context(), 100)
		require.NoError(s, err)
		handlers, err := s.outbox.AppliedHandlers(s.Context(), at)
		require.NoError(s, err)
		return len(handlers) == 1
	})
}

// open publishes an event and keeps its transaction open for as long as fn runs.
func (s *situation) open(evt events.Event, fn func()) {
	s.Helper()
	require.NoError(s, s.outbox.Atomically(s.Context(), func(ctx context.Context) error {
		if err := events.NewPublisher(s.outbox).Publish(ctx, evt); err != nil {
			return err
		}
		fn()
		return nil
	}))
}

func TestAnEventThatNeverExisted(t *testing.T) {
	t.Parallel()
	onServers(t, func(s *situation) {
		empty := events.NewID()
		require.Equal(s, 3, s.ask("why", empty).code)
		s.publish(event(suspended))
		require.Equal(s, 3, s.ask("why", events.NewID()).code)
		require.Equal(s, 3, s.ask("why", "018bcfe5-6800-7000-8000-000000000000").code, "of 2023")
		require.Equal(s, 2, s.ask("why", "order-4711").code)
		require.Equal(s, 3, s.ask("why", "order-4711", "--since", "2h").code)
		name := "never-existed"
		if s.server.Kind == nil { // it does not know of open transactions
			name = s.perServer(name)
		}
		s.golden(name)
	})
}

func TestAnEventWithAnIDOfItsOwn(t *testing.T) {
	t.Parallel()
	onServers(t, func(s *situation) {
		evt := event(suspended)
		evt.ID = "order-4711"
		other := event(suspended)
		s.publish(other, evt)
		s.settle(s.dispatcher(map[string]error{"revoke-api-keys": nil}), evt)
		require.Zero(s, s.ask("why", evt.ID, "--since", "1h").code)
		require.Equal(s, 3, s.ask("why", evt.ID, "--since", "1h", "--most-rows", "1").code)
		s.golden("own-id")
	})
}

func TestAnEventThatNobodyHandles(t *testing.T) {
	t.Parallel()
	onServers(t, func(s *situation) {
		early, unknown := event(suspended), event("iam.v1.UserRenamed")
		s.publish(early, unknown)
		s.settle(s.dispatcher(nil), unknown)
		s.settle(s.dispatcher(map[string]error{"revoke-api-keys": nil}), unknown)
		require.Equal(s, 3, s.ask("why", unknown.ID).code)
		require.Equal(s, 3, s.ask("why", early.ID).code, "the subscription is younger")
		s.golden("no-handler")
	})
}

func TestAnEventWhoseTurnHasNotCome(t *testing.T) {
	t.Parallel()
	onServers(t, func(s *situation) {
		done, left, waiting := event(suspended), event(suspended), event(suspended)
		s.publish(done)
		s.settle(s.dispatcher(map[string]error{"revoke-api-keys": nil, "audit-log": nil}), done)
		s.publish(left)
		s.settle(s.dispatcher(map[string]error{"audit-log": nil}), left) // an old replica
		s.publish(waiting)
		require.Equal(s, 3, s.ask("why", left.ID).code)
		require.Equal(s, 3, s.ask("why", waiting.ID).code)
		s.golden("waiting")
	})
}

func TestAnEventThatACursorHasPassed(t *testing.T) {
	t.Parallel()
	onServers(t, func(s *situation) {
		first, passed := event(suspended), event(suspended)
		s.publish(first)
		d := s.dispatcher(map[string]error{"revoke-api-keys": nil})
		s.settle(d, first)
		s.publish(passed)
		require.NoError(s, s.outbox.Rewind(s.Context(), events.DefaultName, s.cursorOf(passed)))
		require.Equal(s, 3, s.ask("why", passed.ID).code)
		s.golden("passed")
	})
}

func TestAnEventThatRetentionHasDropped(t *testing.T) {
	t.Parallel()
	onServers(t, func(s *situation) {
		evt, kept := event(suspended), event(suspended)
		kept.AggregateID = "u-2"
		s.publish(evt)
		s.settle(s.dispatcher(map[string]error{"revoke-api-keys": events.Permanent(errors.New("no such user"))}), evt)
		at := s.cursorOf(evt)
		s.dropRow(at)
		s.publish(kept)
		require.Equal(s, 3, s.ask("why", evt.ID).code)
		s.golden("dropped")
	})
}

// dropRow does to one row what retention does to a partition.
func (s *situation) dropRow(at persistence.Cursor) {
	s.Helper()
	for table, column := range map[string]string{"outbox": "id", "outbox_idempotency": "event_id"} {
		statement := "DELETE FROM " + table + " WHERE " + column + " = "
		if s.server.Schemas {
			s.exec(statement+"$1", at.ID)
		} else {
			s.exec(statement+"?", at.ID)
		}
	}
}
