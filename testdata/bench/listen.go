package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/pgxtx"
)

// wakeListener starts a dispatcher that has nothing in common with the publisher
// but the database: that is another process.
func wakeListener(ctx context.Context, b *benchmark, enter func()) (commit, func() error, error) {
	pool, err := pgxpool.New(ctx, b.dsn)
	if err != nil {
		return nil, nil, err
	}
	prefix := pgxtx.WithTablePrefix(b.prefix)
	d, err := idle(ctx, pgxtx.New(pool, prefix), enter)
	if err != nil {
		return nil, nil, err
	}
	other, err := startPublisher(ctx, remote{b.dsn, b.prefix})
	if err != nil {
		return nil, nil, err
	}
	running, cancel := context.WithCancel(ctx)
	var group errgroup.Group
	listening := make(chan struct{})
	connected := sync.OnceFunc(func() { close(listening) })
	group.Go(func() error { return d.Poll(running, time.Minute, 100, nil) })
	group.Go(func() error {
		return pgxtx.Listen(running, pool, func() { d.Wake(); connected() }, prefix)
	})
	<-listening
	return other.publish, func() error {
		cancel()
		err := errors.Join(other.stop(), group.Wait())
		pool.Close()
		return err
	}, nil
}

// remote is where a publisher in another process publishes.
type remote struct{ DSN, Prefix string }

// remoteVar tells a process that it is that one.
const remoteVar = "OUTBOX_BENCH_PUBLISHER"

// otherProcess is a publisher that publishes an event for each line that it reads,
// and answers with the time of the commit in nanoseconds.
type otherProcess struct {
	command *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Reader
}

func startPublisher(ctx context.Context, r remote) (*otherProcess, error) {
	executable, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	p := &otherProcess{command: exec.CommandContext(ctx, executable)}
	p.command.Env = append(os.Environ(), remoteVar+"="+string(text))
	p.command.Stderr = os.Stderr
	out, err := p.command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.out = bufio.NewReader(out)
	if p.in, err = p.command.StdinPipe(); err != nil {
		return nil, err
	}
	return p, p.command.Start()
}

func (p *otherProcess) publish(context.Context) (committed time.Time, err error) {
	if _, err := fmt.Fprintln(p.in); err != nil {
		return committed, err
	}
	line, err := p.out.ReadString('\n')
	if err != nil {
		return committed, fmt.Errorf("the publishing process: %w", err)
	}
	nanoseconds, err := strconv.ParseInt(strings.TrimSpace(line), 10, 64)
	return time.Unix(0, nanoseconds), err
}

func (p *otherProcess) stop() error { return errors.Join(p.in.Close(), p.command.Wait()) }

// publishFor is the life of that process.
func publishFor(ctx context.Context, text string) error {
	var r remote
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return err
	}
	pool, err := pgxpool.New(ctx, r.DSN)
	if err != nil {
		return err
	}
	defer pool.Close()
	prefix := pgxtx.WithTablePrefix(r.Prefix)
	outbox, notifier := pgxtx.New(pool, prefix), pgxtx.NewNotifier(pool, prefix)
	publisher := events.NewPublisher(outbox, events.WithNotify(notifier.Notify))
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		if err := outbox.Atomically(ctx, func(ctx context.Context) error { return publisher.Publish(ctx, event) }); err != nil {
			return err
		}
		fmt.Println(time.Now().UnixNano())
	}
	return notifier.Close(ctx)
}
