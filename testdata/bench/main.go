// Command bench compares the library with the same transactions written by
// hand, side by side in one run, since machines are noisy and ratios are not:
//
//	bench publish gormtx mysql c=16 ratio=0.93
//
// A ratio is the library's rate over the rate without it: publish over the same
// transaction with a bare INSERT, dispatch over the handler's transaction by hand
// in as many goroutines. Poison is the rate of healthy aggregates beside one that
// fails, over that without it; open the 99th percentile of the time from commit to
// handler beside a producer that stays open, over that without it; retention the
// time to drop a large partition over that to drop a small one. The servers come
// from package servers.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/testdata/servers"
)

func main() {
	duration := flag.Duration("time", 12*time.Second, "time a figure, shared by both sides")
	rows := flag.Int("rows", 10_000_000, "events in the large partition that is dropped; 0 drops none")
	hold := flag.Duration("open", 30*time.Second, "how long one producer keeps its transaction open")
	names := flag.String("servers", "postgres,mysql,mariadb", "the servers to measure on")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	var err error
	for name := range strings.SplitSeq(*names, ",") {
		if err = run(ctx, name, *duration, *hold, *rows); err != nil {
			break
		}
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, name string, duration, hold time.Duration, rows int) error {
	family, ok := families[name]
	if !ok {
		return fmt.Errorf("no benchmark for server %q", name)
	}
	kind, err := servers.Lookup(name)
	if err != nil {
		return err
	}
	server, err := servers.Start(ctx, kind)
	if err != nil {
		return err
	}
	defer server.Stop(context.WithoutCancel(ctx))
	fmt.Println(server)
	for _, concurrency := range []int{1, 4, 16} {
		if err := measure(ctx, family, server, duration, concurrency); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	if err := measureBeside(ctx, family, server, hold); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if rows == 0 {
		return nil
	}
	return compareDrops(ctx, family, server, rows)
}

func measure(ctx context.Context, family family, server *servers.Server, duration time.Duration, concurrency int) error {
	b, err := open(ctx, family, server.DSN, concurrency)
	if err != nil {
		return err
	}
	defer b.close()
	ratio, err := compare(ctx, duration, side{b.publish, concurrency}, side{b.bareInsert, concurrency})
	if err != nil {
		return err
	}
	fmt.Printf("bench publish gormtx %s c=%d ratio=%.2f\n", server.Name, concurrency, ratio)
	if err := b.fill(ctx, int(duration.Seconds()*eventsPerSecond)); err != nil {
		return err
	}
	ratio, err = compare(ctx, duration, side{b.dispatch, 1}, side{b.handWritten, concurrency})
	if err != nil {
		return err
	}
	fmt.Printf("bench dispatch gormtx %s c=%d ratio=%.2f\n", server.Name, concurrency, ratio)
	return nil
}

// measureBeside measures what others do to an aggregate's events.
func measureBeside(ctx context.Context, family family, server *servers.Server, hold time.Duration) error {
	b, err := open(ctx, family, server.DSN, 2*quick)
	if err != nil {
		return err
	}
	defer b.close()
	ratio, err := b.comparePoison(ctx, events.DefaultConcurrency)
	if err != nil {
		return err
	}
	fmt.Printf("bench poison gormtx %s c=%d ratio=%.2f\n", server.Name, events.DefaultConcurrency, ratio)
	ratio, without, err := b.compareOpen(ctx, hold)
	if err != nil {
		return err
	}
	fmt.Printf("bench open gormtx %s c=%d p99=%s ratio=%.2f\n", server.Name, events.DefaultConcurrency, without.Round(100*time.Microsecond), ratio)
	return nil
}
