package ctl

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/persistence"
)

func TestAStandbyReplica(t *testing.T) {
	t.Parallel()
	onServers(t, func(s *situation) {
		held := func(token int64) func() bool {
			return func() bool {
				state, err := s.outbox.Load(s.Context(), events.DefaultName)
				return err == nil && state.Lease.Token == token && state.Lease.Owner != ""
			}
		}
		stopHolder := s.replica()
		s.eventually("the first replica holds the lease", held(1))
		stopStandby := s.replica()
		evt := event(suspended)
		s.publish(evt)
		at := s.cursorOf(evt)
		s.eventually("the cursor is saved", func() bool {
			state, err := s.outbox.Load(s.Context(), events.DefaultName)
			return err == nil && state.Cursor.Compare(at) == 0
		})
		s.ask("cursor", "list")
		stopHolder()
		s.eventually("the standby has taken over", held(2))
		s.ask("cursor", "list")
		stopStandby()
		s.ask("cursor", "list")
		s.golden("standby")
	})
}

// replica runs a dispatcher until it is told to stop, or the test ends.
func (s *situation) replica() (stop func()) {
	s.Helper()
	ctx, cancel := context.WithCancel(s.Context())
	d := s.dispatcher(map[string]error{"revoke-api-keys": nil})
	var running sync.WaitGroup
	running.Go(func() { _ = d.Poll(ctx, 10*time.Millisecond, 100, func(error) {}) })
	stop = func() {
		cancel()
		running.Wait()
	}
	s.Cleanup(stop)
	return stop
}

func TestALostLease(t *testing.T) {
	t.Parallel()
	onServers(t, func(s *situation) {
		require.NoError(s, s.outbox.Create(s.Context(), events.DefaultName, persistence.Cursor{}))
		hold := func(owner string, duration time.Duration) persistence.Lease {
			lease, err := s.outbox.Acquire(s.Context(), events.DefaultName, owner, duration)
			require.NoError(s, err)
			return lease
		}
		lost := hold("iam-7d9f/1/"+events.NewID(), time.Millisecond) // and is not heard of any more
		s.eventually("the lease has expired", func() bool {
			mark, err := s.outbox.SafeMark(s.Context())
			require.NoError(s, err)
			return mark.Now.After(lost.ExpiresTime)
		})
		s.ask("cursor", "list")
		require.Equal(s, 3, s.ask("status").code)
		hold("iam-8c2a/1/"+events.NewID(), time.Hour)
		require.ErrorIs(s, s.outbox.Release(s.Context(), lost), persistence.ErrLeaseLost)
		s.ask("cursor", "list")
		require.Zero(s, s.ask("status").code)
		s.golden(s.perServer("lost-lease"))
	})
}
