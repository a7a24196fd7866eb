// Command stress runs many producers in several processes against one outbox,
// beside a reader that moves a cursor and a dispatcher that applies effects,
// and counts what was lost, applied twice or delivered out of order:
//
//	stress server=postgres events=200000 lost=0 twice=0 disorder=0
//
// With -control it takes a wrong reader or a wrong stamp instead of the
// library's, and then has to lose events: a harness that cannot catch them
// proves nothing. It exits with an error when an exact run is not clean, and
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
	"slices"
	"strings"

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
	flag.StringVar(&config.Control, "control", "", "a negative control, "+strings.Join(controlNames(), ", ")+", or all of them")
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
	family, ok := families[config.Server]
	if !ok {
		return fmt.Errorf("no stress for server %q", config.Server)
	}
	dsn, err := family.prepare(dsn)
	if err != nil {
		return err
	}
	controls := []string{config.Control}
	if config.Control == "all" {
		controls = controlNames()
	}
	for _, control := range controls {
		config.Control, config.DSN = control, dsn
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

func controlNames() []string {
	var names []string
	for name := range controls {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
