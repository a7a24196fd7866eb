// Command stress runs many producers in several processes against one outbox,
// beside a reader that moves a cursor and a dispatcher that applies effects,
// and counts what was lost, applied twice or delivered out of order:
//
//	stress server=postgres events=200000 lost=0 twice=0 disorder=0
//
// One of the producers keeps its transaction open for a while, once.
//
// With -control it takes a wrong reader or a wrong stamp instead of the
// library's, and then has to lose events, or their order: a harness that cannot
// catch that proves nothing. It exits with an error when an exact run is not clean, and
// when a control is.
//
// The server comes from package servers, or from DSN.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/onward-go/outbox/testdata/servers"
)

func main() {
	if isProducer() {
		exit(produceFromEnvironment())
	}
	config := Config{}
	flag.IntVar(&config.Events, "events", 200_000, "events to commit, at least")
	flag.IntVar(&config.Processes, "processes", 4, "producer processes")
	flag.IntVar(&config.Producers, "producers", 16, "producers, spread over the processes")
	flag.IntVar(&config.Aggregates, "aggregates", 100, "aggregates that they write")
	flag.IntVar(&config.Handled, "handled", 1, "one aggregate in so many has a handler; the cursor passes all")
	flag.DurationVar(&config.Pause, "pause", 10*time.Millisecond, "pauses inside a transaction, at most; a few are twenty times as long")
	flag.DurationVar(&config.Open, "open", 10*time.Second, "how long one producer keeps its transaction open; controls have none")
	flag.StringVar(&config.Isolation, "isolation", "", "isolation level of all sessions, "+strings.Join(isolations, ", ")+`, or "all" for one run each`)
	flag.StringVar(&config.Face, "face", "", "how the outbox is reached: gormtx, sqltx or pgxtx; controls are of gormtx alone")
	flag.StringVar(&config.Control, "control", "", `a negative control, or "all" that the server has`)
	flag.StringVar(&config.Server, "server", servers.Postgres.Name, "kind of server")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, config)
	stop()
	exit(err)
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "stress:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func run(ctx context.Context, config Config) error {
	dsn := os.Getenv("DSN")
	if dsn == "" {
		kind, err := servers.Lookup(config.Server)
		if err != nil {
			return err
		}
		server, err := servers.Start(ctx, kind)
		if err != nil {
			return err
		}
		defer server.Stop(context.WithoutCancel(ctx))
		dsn = server.DSN
	}
	family, err := familyOf(config.Server)
	if err != nil {
		return err
	}
	if config.DSN, err = family.prepare(ctx, dsn); err != nil {
		return err
	}
	for _, config := range runs(config, family) {
		result, err := Stress(ctx, config)
		if err != nil {
			return err
		}
		fmt.Println(result)
		if err := result.verdict(); err != nil {
			return err
		}
	}
	return nil
}

// runs returns one configuration a run.
func runs(config Config, family family) (all []Config) {
	levels, controls := []string{config.Isolation}, []string{config.Control}
	if config.Isolation == "all" {
		levels = isolations
	}
	if config.Control == "all" {
		controls = family.controlNames()
	}
	for _, config.Isolation = range levels {
		for _, config.Control = range controls {
			if config.Control != "" {
				config.Open = 0 // the reader has to be fast, and would wait
			}
			all = append(all, config)
		}
	}
	return all
}
