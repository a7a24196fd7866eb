// Command bench compares the library with the same transactions written by
// hand, side by side in one run, since machines are noisy and ratios are not:
//
//	bench publish gormtx postgres c=4 ratio=0.98
//
// A ratio is the library's rate over the rate without it. The server comes from
// package servers.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"time"

	"github.com/onward-go/outbox/testdata/servers"
)

func main() {
	duration := flag.Duration("time", 6*time.Second, "time a figure, shared by both sides")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, *duration)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, duration time.Duration) error {
	server, err := servers.Start(ctx, servers.Postgres)
	if err != nil {
		return err
	}
	defer server.Stop(context.WithoutCancel(ctx))
	fmt.Println(server)
	for _, concurrency := range []int{1, 4, 16} {
		b, err := open(ctx, server.DSN, concurrency)
		if err != nil {
			return err
		}
		ratio, err := compare(ctx, duration, concurrency, b.publish, b.bareInsert)
		if err != nil {
			return err
		}
		fmt.Printf("bench publish gormtx postgres c=%d ratio=%.2f\n", concurrency, ratio)
		if concurrency == 1 { // the dispatcher delivers one event at a time
			if err := b.fill(ctx, 100_000); err != nil {
				return err
			}
			ratio, err := compare(ctx, duration, 1, b.dispatch, b.handWritten)
			if err != nil {
				return err
			}
			fmt.Printf("bench dispatch gormtx postgres c=1 ratio=%.2f\n", ratio)
		}
		b.close()
	}
	return nil
}
