package iam_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/internal/blindstore"
	"github.com/onward-go/outbox/persistence"
	"github.com/onward-go/outbox/testdata/iam/app"
)

// The dispatchers meet right before each transaction: wherever there is one
// writer, only one of them gets further than that.
func TestRaceBeforeTheTransaction(t *testing.T) {
	everywhere(t, func(t *testing.T, w wiring) {
		r := newRace(t, w.open(t))
		r.run(t, r.outbox)
		r.wantRevocations(t, 1)
	})
}

// The first dispatcher stays in its handler until the second one asks for the
// same marker.
func TestRaceBetweenTheMarkers(t *testing.T) {
	everywhere(t, func(t *testing.T, w wiring) {
		if w.oneWriter {
			t.Skip("one writer: the second cannot ask before the first has committed")
		}
		r := newRace(t, w.open(t))
		r.handle = r.handleLate
		r.run(t, r.outbox)
		r.wantRevocations(t, 1)
	})
}

// The control: without markers a race does show.
func TestRaceWithoutMarkers(t *testing.T) {
	everywhere(t, func(t *testing.T, w wiring) {
		r := newRace(t, w.open(t))
		r.run(t, forgetful{})
		r.wantRevocations(t, 2)
	})
}

// race is two dispatchers of one name that deliver the same events: the second
// takes over while the first is at work.
type race struct {
	fixture
	users   []string
	meeting meeting
	asked   *askers
	handle  events.Handler
}

func newRace(t testing.TB, f fixture) *race {
	t.Helper()
	r := &race{fixture: f, meeting: make(meeting), asked: newAskers()}
	r.handle = f.app().RevokeKeys
	for i := range 10 {
		user := fmt.Sprintf("user-%02d", i)
		f.register(t, user)
		require.NoError(t, f.app().Suspend(t.Context(), user))
		r.users = append(r.users, user)
	}
	return r
}

// handleLate revokes the keys and stays until both dispatchers have asked for
// the event's marker.
func (r *race) handleLate(ctx context.Context, evt events.Event) error {
	if err := r.app().RevokeKeys(ctx, evt); err != nil {
		return err
	}
	return r.asked.waitForBoth(ctx, evt.ID)
}

// run makes a pass with each of two dispatchers, and fails unless both have
// entered the delivery of each event.
func (r *race) run(t testing.TB, idempotency persistence.IdempotencyStore) {
	t.Helper()
	r.settled(t)
	group, ctx := errgroup.WithContext(t.Context())
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	atWork := make(chan struct{}) // the first one, with a lease that has expired
	for name, c := range map[string]expiredCursors{
		"first":  {r.outbox, make(chan struct{})},
		"second": {r.outbox, atWork},
	} {
		tx := meetingTransactor{r.outbox, r.meeting, func() {}}
		if name == "first" {
			close(c.ready)
			tx.begins = sync.OnceFunc(func() { close(atWork) })
		}
		d := events.NewDispatcher(r.outbox, c, tx, askedStore{blindstore.New(idempotency), name, r.asked},
			events.WithConcurrency(1), events.WithLease(time.Hour))
		require.NoError(t, d.Subscribe(app.UserSuspended, app.RevokeKeysHandler, r.handle))
		group.Go(func() error {
			settled, err := d.RunOnce(ctx, 100)
			if name == "first" && errors.Is(err, persistence.ErrLeaseLost) {
				err = nil
			} else if name == "first" {
				err = fmt.Errorf("the first dispatcher has not lost its lease: %w", err)
			}
			if err == nil && settled != len(r.users) {
				err = fmt.Errorf("the %s dispatcher settled %d events, not %d", name, settled, len(r.users))
			}
			return err
		})
	}
	require.NoError(t, group.Wait())

	_, rows := r.table(t)
	require.Len(t, rows, len(r.users))
	for _, row := range rows {
		require.ElementsMatch(t, []string{"first", "second"}, r.asked.of(row["id"]), "event %s", row["id"])
	}
}

func (r *race) wantRevocations(t testing.TB, n int) {
	t.Helper()
	for _, user := range r.users {
		r.wantKeys(t, user, n)
	}
}
