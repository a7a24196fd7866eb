package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"time"

	"github.com/onward-go/outbox/events"
)

// placeVar makes a process the dispatcher of a run and says where that is.
const placeVar = "OUTBOX_DEMO_PLACE"

const (
	pollInterval = 100 * time.Millisecond
	batch        = 50
	// takeOver is how long it takes until another dispatcher goes on in the
	// place of the one that was killed.
	takeOver = 2 * time.Second
)

func isDispatcher() bool { return os.Getenv(placeVar) != "" }

// dispatch is the other process. It delivers events until its standard input
// ends, which it also does when the first process dies.
func dispatch() error {
	// An interrupt from the terminal reaches both processes, and the first one
	// decides.
	signal.Ignore(os.Interrupt)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // an error is an end, too
		cancel()
	}()

	place, err := parsePlace(os.Getenv(placeVar))
	if err != nil {
		return fmt.Errorf("dispatcher: %s: %w", placeVar, err)
	}
	db, err := place.open(events.DefaultConcurrency + 2)
	if err != nil {
		return fmt.Errorf("dispatcher: %w", err)
	}
	defer db.close()
	logger := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	d := events.NewDispatcher(db.outbox, db.outbox, db.outbox, db.outbox,
		events.WithLogger(logger), events.WithLease(takeOver))
	if err := db.app().Subscribe(d); err != nil {
		return err
	}
	return d.Poll(ctx, pollInterval, batch, nil)
}
