// Command bench compares libraries with the same transactions written by hand,
// side by side in one run, since machines are noisy and ratios are not:
//
//	bench publish gormtx mysql c=16 ratio=0.93
//	bench dispatch river postgres c=4 ratio=0.23
//
// A ratio is a library's rate over the rate without it: publish over the same
// transaction with a bare INSERT through the same driver; dispatch, batch-rows and
// batch-sets over the handler's transaction by hand, a marker and a change, in as
// many goroutines. Wake is the time from commit to handler.
//
// The contenders are this library through its faces, gormtx, sqltx and
// pgxtx, and on PostgreSQL watermill-sql and River. Each is measured in its own discipline, the way in which it says that an
// effect is exactly-once, and each has a file that says what that is. They take
// turns with the hand-written transactions: a handler's transaction begins and ends
// within the contender's turn. In the end the changes in the database, the events
// that the handlers have counted and those that the library holds for done must be
// the same number, or the program fails.
//
// The other figures are this library's alone. Poison is the rate of healthy
// aggregates beside one that fails, over that without it; open the 99th percentile
// of the time from commit to handler beside a producer that stays open, over that
// without it; retention the time to drop a large partition over that to drop a
// small one. The servers come from package servers. What the figures mean is in
// docs/benchmarks.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/testdata/servers"
)

// settings say what is measured, and for how long.
type settings struct {
	duration time.Duration
	hold     time.Duration
	pace     int
	rows     int
	backlog  int
	flushes  bool
	// concurrencies are how many transactions run at once, where that is compared.
	concurrencies []int
	figures       []string
	// contenders are those that run on the server.
	contenders []contender
}

func main() {
	s := settings{concurrencies: []int{1, 4, 16}}
	flag.DurationVar(&s.duration, "time", 12*time.Second, "time a figure, shared by both sides")
	flag.IntVar(&s.rows, "rows", 10_000_000, "events in the large partition that is dropped, and in the outbox that is searched; 0 measures neither")
	flag.IntVar(&s.backlog, "backlog", 1_000_000, "events of a kilobyte that are delivered while the heap is watched")
	flag.DurationVar(&s.hold, "open", 30*time.Second, "how long one producer keeps its transaction open")
	flag.IntVar(&s.pace, "pace", 10, "transactions a second of each of the 15 producers beside it")
	flag.BoolVar(&s.flushes, "flushes", true, "measure on servers that flush to disk what they commit, as those in production do")
	names := flag.String("servers", "postgres,mysql,mariadb", "the servers to measure on")
	figures := flag.String("figures", "publish,dispatch,batch-rows,batch-sets,flush,wake,memory,poison,open,retention,why", "what to measure")
	flag.Func("concurrency", "how many transactions run at once, such as 1,4,16, the default", func(text string) error {
		s.concurrencies = nil
		for number := range strings.SplitSeq(text, ",") {
			n, err := strconv.Atoi(number)
			if err != nil || n < 1 || n > parts {
				return fmt.Errorf("%q is not a number from 1 to %d", number, parts)
			}
			s.concurrencies = append(s.concurrencies, n)
		}
		return nil
	})
	profile := flag.String("profile", "", "where to write a CPU profile")
	chosen := flag.String("contenders", "gormtx,sqltx,pgxtx,watermill,river", "the libraries to measure; the last three run on postgres only")
	flag.Parse()
	s.figures = strings.Split(*figures, ",")
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	if text := os.Getenv(remoteVar); text != "" {
		exit(publishFor(ctx, text))
	}
	stopProfile, err := startProfile(*profile)
	for name := range strings.SplitSeq(*names, ",") {
		if err != nil {
			break
		}
		if err = run(ctx, name, strings.Split(*chosen, ","), s); err != nil {
			err = fmt.Errorf("%s: %w", name, err)
		}
	}
	err = errors.Join(err, stopProfile())
	stop()
	exit(err)
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func run(ctx context.Context, name string, chosen []string, s settings) error {
	family, ok := families[name]
	if !ok {
		return errors.New("no benchmark for this server")
	}
	for _, want := range chosen {
		i := slices.IndexFunc(contenders, func(c contender) bool { return c.name == want })
		if i < 0 {
			return fmt.Errorf("no contender %q", want)
		}
		if contenders[i].runsOn(name) {
			s.contenders = append(s.contenders, contenders[i])
		}
	}
	kind, err := servers.Lookup(name)
	if err != nil {
		return err
	}
	server, err := startServer(ctx, kind, s.flushes)
	if err != nil {
		return err
	}
	defer server.Stop(context.WithoutCancel(ctx))
	fmt.Println(server)
	for _, figure := range s.figures {
		measure, ok := figureByName[figure]
		if !ok {
			return fmt.Errorf("no figure %q", figure)
		}
		if err := measure(ctx, family, server, s); err != nil {
			return fmt.Errorf("%s: %w", figure, err)
		}
	}
	return nil
}

// startServer starts a server, one that flushes if it is to.
func startServer(ctx context.Context, kind *servers.Kind, flushes bool) (*servers.Server, error) {
	if flushes {
		return servers.StartOwn(ctx, kind.Flushing())
	}
	return servers.Start(ctx, kind)
}

// figure measures something on a server, and prints it.
type figure func(context.Context, family, *servers.Server, settings) error

var figureByName = map[string]figure{
	"publish":    measurePublish,
	"dispatch":   measureEngine("dispatch"),
	"batch-rows": measureEngine("batch-rows"),
	"batch-sets": measureEngine("batch-sets"),
	"flush":      measureFlush,
	"wake":       measureWake,
	"memory":     alone(measureMemory),
	"poison":     alone(measurePoison),
	"open":       alone(measureOpen),
	"retention":  alone(measureRetention),
	"why":        alone(measureWhy),
}

// alone is a figure of this library alone.
func alone(measure figure) figure {
	return func(ctx context.Context, f family, server *servers.Server, s settings) error {
		if !slices.ContainsFunc(s.contenders, func(c contender) bool { return c.name == gormtxContender.name }) {
			return nil
		}
		return measure(ctx, f, server, s)
	}
}

// measureEach prints a ratio for each of some concurrencies.
func measureEach(ctx context.Context, f family, server *servers.Server, s settings, what, name string, measure func(*benchmark, int) (float64, error)) error {
	for _, concurrency := range s.concurrencies {
		b, err := open(ctx, f, server.DSN, concurrency)
		if err != nil {
			return err
		}
		ratio, err := measure(b, concurrency)
		b.close()
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		fmt.Printf("bench %s %s %s c=%d ratio=%.2f\n", what, name, server.Name, concurrency, ratio)
	}
	return nil
}

func measurePublish(ctx context.Context, f family, server *servers.Server, s settings) error {
	for _, c := range s.contenders {
		if err := measureEach(ctx, f, server, s, "publish", c.name, func(b *benchmark, concurrency int) (float64, error) {
			p, err := c.publisher(ctx, b, concurrency)
			if err != nil {
				return 0, err
			}
			defer p.close()
			return compare(ctx, s.duration, shortTurn, side{p.publish, concurrency, nil}, side{p.bareInsert, concurrency, nil})
		}); err != nil {
			return err
		}
	}
	return nil
}

// measureEngine compares the libraries with the limit, in the disciplines of a
// figure.
func measureEngine(what string) figure {
	return func(ctx context.Context, f family, server *servers.Server, s settings) error {
		for _, c := range s.contenders {
			for _, how := range c.disciplines {
				if how.figure != what {
					continue
				}
				if err := measureEach(ctx, f, server, s, what, how.name, func(b *benchmark, concurrency int) (float64, error) {
					return b.compareEngine(ctx, how, s.duration, concurrency)
				}); err != nil {
					return err
				}
			}
		}
		return nil
	}
}

// measureFlush measures, on a server that flushes to disk, what it costs that each
// transaction of a handler is, and what is gained if only the cursor's save is.
func measureFlush(ctx context.Context, f family, server *servers.Server, s settings) error {
	if server.Name != servers.Postgres.Name {
		return nil
	}
	if s.flushes {
		return measureEngine("flush")(ctx, f, server, s)
	}
	durable, err := startServer(ctx, servers.Postgres, true)
	if err != nil {
		return err
	}
	defer durable.Stop(context.WithoutCancel(ctx))
	return measureEngine("flush")(ctx, f, durable, s)
}

// measurePoison and measureOpen measure what others do to an aggregate's events.
func measurePoison(ctx context.Context, f family, server *servers.Server, _ settings) error {
	b, err := open(ctx, f, server.DSN, 2*quick)
	if err != nil {
		return err
	}
	defer b.close()
	ratio, err := b.comparePoison(ctx, events.DefaultConcurrency)
	if err != nil {
		return err
	}
	fmt.Printf("bench poison gormtx %s c=%d ratio=%.2f\n", server.Name, events.DefaultConcurrency, ratio)
	return nil
}

func measureOpen(ctx context.Context, f family, server *servers.Server, s settings) error {
	b, err := open(ctx, f, server.DSN, 2*quick)
	if err != nil {
		return err
	}
	defer b.close()
	ratio, without, err := b.compareOpen(ctx, s.hold, s.pace)
	if err != nil {
		return err
	}
	fmt.Printf("bench open gormtx %s c=%d pace=%d p99=%s ratio=%.2f\n", server.Name, events.DefaultConcurrency, s.pace, without.Round(100*time.Microsecond), ratio)
	return nil
}

func measureRetention(ctx context.Context, f family, server *servers.Server, s settings) error {
	if s.rows == 0 {
		return nil
	}
	return compareDrops(ctx, f, server, s.rows)
}
