package iam_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/internal/blindstore"
	"github.com/onward-go/outbox/persistence"
	"github.com/onward-go/outbox/testdata/iam/app"
)

// Two operators replay the same dead letter. They meet right before the
// transaction.
func TestReplaysThatRaceRevokeOnce(t *testing.T) {
	everywhere(t, func(t *testing.T, w wiring) {
		f := w.open(t)
		require.Equal(t, 1, f.replayTwice(t, f.outbox))
		f.wantKeys(t, "user", 1)
		f.wantPass(t, f.dispatcher(t, f.outbox), 0)
		f.rewind(t)
		f.wantPass(t, f.dispatcher(t, blindstore.New(f.outbox)), 1)
		f.wantKeys(t, "user", 1)
	})
}

// The control: if the letter is not moved first, the race does show.
func TestReplaysThatMoveNothingRevokeTwice(t *testing.T) {
	everywhere(t, func(t *testing.T, w wiring) {
		f := w.open(t)
		require.Zero(t, f.replayTwice(t, careless{f.outbox}))
		f.wantKeys(t, "user", 2)
	})
}

// replayTwice has the event of a suspended user become a dead letter, and two
// dispatchers replay it at once. It returns how many of them were refused.
func (f fixture) replayTwice(t *testing.T, cursors persistence.OutboxCursorStore) (refused int) {
	t.Helper()
	f.register(t, "user")
	require.NoError(t, f.app().Suspend(t.Context(), "user"))
	f.settled(t)
	broken := events.NewDispatcher(f.outbox, f.outbox, f.outbox, f.outbox)
	require.NoError(t, broken.Subscribe(app.UserSuspended, app.RevokeKeysHandler, func(context.Context, events.Event) error {
		return events.Permanent(errors.New("broken"))
	}))
	_, err := broken.RunOnce(t.Context(), 100)
	require.ErrorIs(t, err, events.ErrDeadLettered)
	letters, err := f.outbox.ListDeadLetters(t.Context(), persistence.DeadLetterQuery{Limit: 10})
	require.NoError(t, err)
	require.Len(t, letters, 1)

	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	meeting := make(meeting)
	results := make(chan error, 2)
	for range 2 {
		d := events.NewDispatcher(f.outbox, cursors, meetingTransactor{f.outbox, meeting, func() {}}, f.outbox)
		require.NoError(t, f.app().Subscribe(d))
		go func() { results <- d.Replay(ctx, letters[0].Marker()) }()
	}
	for range 2 {
		if err := <-results; errors.Is(err, events.ErrLetterState) {
			refused++
		} else {
			require.NoError(t, err)
		}
	}
	return refused
}

// careless moves no letter: the wrong store, for the control.
type careless struct{ persistence.OutboxCursorStore }

func (careless) MoveDeadLetter(context.Context, persistence.DeadLetterMove) error { return nil }
