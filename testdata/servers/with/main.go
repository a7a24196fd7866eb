// Command with runs another command with database servers at its side:
//
//	with [-servers postgres,...] -- command [argument ...]
//
// It starts each server once, names it to the command through the environment
// variable that package servers reads, and stops it when the command has ended.
// So all packages of a test run share the servers. It exits with the command's
// code; build it to see that code, since "go run" turns all failures into 1.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/onward-go/outbox/testdata/servers"
)

// Exit codes of our own are those of env(1) and similar commands.
const (
	exitFailed   = 125
	exitUsage    = 2
	exitNoExec   = 126
	exitNotFound = 127
)

const (
	startTimeout = 8 * time.Minute // images may be built
	stopTimeout  = time.Minute
)

func main() { os.Exit(run(os.Args[1:], os.Stderr)) }

func run(args []string, messages io.Writer) int {
	var all []string
	for _, k := range servers.Kinds() {
		all = append(all, k.Name)
	}
	flags := flag.NewFlagSet("with", flag.ContinueOnError)
	flags.SetOutput(messages)
	flags.Usage = func() {
		fmt.Fprintln(messages, "usage: with [-servers name,...] -- command [argument ...]")
		flags.PrintDefaults()
	}
	names := flags.String("servers", strings.Join(all, ","), "the servers to start")
	if err := flags.Parse(args); err != nil {
		return exitUsage
	}
	if flags.NArg() == 0 {
		flags.Usage()
		return exitUsage
	}
	kinds, err := lookup(*names)
	if err != nil {
		fmt.Fprintln(messages, "with:", err)
		return exitUsage
	}

	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	started, err := start(kinds, signals, messages)
	defer stop(started, messages)
	if err != nil {
		fmt.Fprintln(messages, "with:", err)
		return exitFailed
	}
	return command(flags.Args(), environment(started), signals, messages)
}

// lookup returns the named kinds.
func lookup(names string) ([]*servers.Kind, error) {
	var kinds []*servers.Kind
	for name := range strings.SplitSeq(names, ",") {
		if name = strings.TrimSpace(name); name == "" {
			continue
		}
		kind, err := servers.Lookup(name)
		if err != nil {
			return nil, err
		}
		kinds = append(kinds, kind)
	}
	return kinds, nil
}

// instance is a running server and its kind.
type instance struct {
	kind   *servers.Kind
	server *servers.Server
}

// start starts the servers side by side, until a signal arrives. It returns
// those that run, also with an error.
func start(kinds []*servers.Kind, signals <-chan os.Signal, messages io.Writer) ([]instance, error) {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()

	instances := make([]instance, len(kinds))
	errs := make([]error, len(kinds))
	var wg sync.WaitGroup
	for i, kind := range kinds {
		if kind.Skipped() {
			fmt.Fprintf(messages, "server %s skipped by %s\n", kind.Name, servers.SkipVar)
			continue
		}
		wg.Go(func() {
			instances[i].kind = kind
			instances[i].server, errs[i] = servers.Start(ctx, kind)
		})
	}
	done := make(chan struct{})
	go func() {
		wg.Wait()
		close(done)
	}()

	var interrupted error
	select {
	case <-done:
	case s := <-signals:
		interrupted = fmt.Errorf("interrupted: %s", s)
		cancel()
		<-done
	}
	var started []instance
	for _, in := range instances {
		if in.server != nil {
			started = append(started, in)
			fmt.Fprintln(messages, in.server)
		}
	}
	return started, errors.Join(append(errs, interrupted)...)
}

func stop(started []instance, messages io.Writer) {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	for _, in := range started {
		if err := in.server.Stop(ctx); err != nil {
			fmt.Fprintln(messages, "with:", err)
		}
	}
}

// environment is ours with the servers' DSNs.
func environment(started []instance) []string {
	env := os.Environ()
	for _, in := range started {
		env = append(env, in.kind.EnvVar+"="+in.server.DSN)
	}
	return env
}

// command runs the command, passes signals on to it and returns its exit code.
func command(args, env []string, signals <-chan os.Signal, messages io.Writer) int {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = env
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(messages, "with:", err)
		if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
			return exitNotFound
		}
		return exitNoExec
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		select {
		case s := <-signals:
			// It may have ended meanwhile.
			_ = cmd.Process.Signal(s)
		case err := <-ended:
			return exitCode(cmd.ProcessState, err, messages)
		}
	}
}

// exitCode is what a shell would report.
func exitCode(state *os.ProcessState, err error, messages io.Writer) int {
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		fmt.Fprintln(messages, "with:", err)
		return exitFailed
	}
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return state.ExitCode()
}
