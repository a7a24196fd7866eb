// Command demo suspends thousands of users while a dispatcher in another
// process revokes their API keys, kills that process half-way, starts it again,
// and counts in the database's own tables what was lost or applied twice:
//
//	cd testdata
//	go run ./iam/demo
//
// It needs no server and no C compiler: without more it makes a SQLite database
// in a temporary directory. On PostgreSQL it works in a schema of its own:
//
//	DSN=postgres://localhost/postgres go run ./iam/demo
//
// About one transaction in ten is rolled back on purpose; those users stay
// active, and no event of theirs exists. Flags:
//
//	-users n       how many users, 3000
//	-producers n   how many of them are suspended at a time, 8
//	-rate n        how many are suspended in a second, 200; 0 is as many as can be
//	-patience d    how long to wait when nothing moves, 30s
//
// The last line of the output is for scripts:
//
//	demo server=sqlite published=2700 delivered=2700 lost=0 twice=0
//
// The exit status is 1 if the tally is wrong, if the kill missed, or if
// something else went wrong. An interrupt ends it. In each case it removes what
// it made.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	if isDispatcher() {
		exit(dispatch())
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// A second interrupt does not wait for the cleaning up.
	context.AfterFunc(ctx, stop)
	exit(run(ctx, os.Args[1:], os.Stdout))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// run is the command without the process around it.
func run(ctx context.Context, args []string, out io.Writer) (err error) {
	var o options
	flags := flag.NewFlagSet("demo", flag.ExitOnError)
	flags.IntVar(&o.users, "users", 3000, "how many users; at least 20")
	flags.IntVar(&o.producers, "producers", 8, "how many users are suspended at a time; at least 1")
	flags.IntVar(&o.rate, "rate", 200, "how many users are suspended in a second; 0: as many as can be")
	flags.DurationVar(&o.patience, "patience", 30*time.Second, "how long to wait when nothing moves")
	_ = flags.Parse(args) // it exits
	if o.users < 20 || o.producers < 1 || o.rate < 0 {
		return fmt.Errorf("-users %d -producers %d -rate %d: at least 20 users, 1 producer and a rate of 0", o.users, o.producers, o.rate)
	}

	place, err := newPlace(os.Getenv("DSN"))
	if err != nil {
		return err
	}
	db, err := place.open(o.producers + 2)
	if err != nil {
		return errors.Join(err, place.remove())
	}
	defer func() { err = errors.Join(err, db.discard()) }()
	if err := db.migrate(ctx); err != nil {
		return err
	}
	d := demo{options: o, db: db, app: db.app(), screen: newScreen(out)}
	err = d.run(ctx)
	if ctx.Err() != nil {
		return errors.New("interrupted")
	}
	return err
}

// options are the flags.
type options struct {
	users, producers, rate int
	patience               time.Duration
}
