package main

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTurnEndsWhenTheLastTransactionHas(t *testing.T) {
	g := newGate()
	entered, commit := make(chan struct{}), make(chan struct{})
	first := make(chan error, 1)
	go func() {
		first <- g.within(func() error {
			close(entered)
			<-commit
			return g.count(7, nil)
		})
	}()
	ctx, end := context.WithCancel(t.Context())
	handled := make(chan int64, 1)
	go func() { handled <- g.work(ctx, time.Hour) }()
	<-entered
	end()
	select {
	case <-handled:
		t.Fatal("the turn has ended before the transaction")
	case <-time.After(20 * time.Millisecond):
	}
	close(commit)
	require.NoError(t, <-first)
	require.Equal(t, int64(7), <-handled)
}

func TestNobodyEntersAfterTheLastTurn(t *testing.T) {
	g := newGate()
	waits := make(chan error, 1)
	go func() { waits <- g.within(func() error { return g.count(1, nil) }) }()
	g.close()
	require.ErrorIs(t, <-waits, errShut)
	require.ErrorIs(t, g.enter(), errShut)
	require.Zero(t, g.handled.Load())
}

func TestFailedHandlerCountsNothing(t *testing.T) {
	g := newGate()
	require.ErrorIs(t, g.count(3, errShut), errShut)
	require.Zero(t, g.handled.Load())
}
