package servers

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Origins of a server.
const (
	FromEnvironment = "environment"
	FromContainer   = "container"
	FromLocal       = "local"
)

// Server is a running database server.
type Server struct {
	// Name is the name of its kind.
	Name string
	// DSN connects as an administrator, to the server's default database.
	DSN string
	// Addr is its host and port.
	Addr string
	// Version is what the server says of itself, such as "15.18".
	Version string
	// Origin is FromEnvironment, FromContainer or FromLocal.
	Origin string

	kind *Kind

	mu      sync.Mutex
	backend backend // nil when the server is not ours
	state   state
}

type state int

const (
	running state = iota
	down          // killed, or a restart failed
	removed
)

// backend runs a server that this package started.
type backend interface {
	start(ctx context.Context) error
	// check returns an error once the server has ended.
	check(ctx context.Context) error
	stop(ctx context.Context) error
	kill(ctx context.Context) error
	// remove deletes everything the server left. It runs after stop, kill or
	// a failed start.
	remove(ctx context.Context) error
}

// Limits of single steps; a caller's context may be shorter.
const (
	readyTimeout = 60 * time.Second
	stopTimeout  = 20 * time.Second
	probeTimeout = 5 * time.Second
	probePause   = 50 * time.Millisecond
)

// launch starts a backend and waits until it answers. If that fails, nothing
// is left behind.
func launch(ctx context.Context, kind *Kind, origin, dsn string, b backend) (*Server, error) {
	addr, err := kind.engine.address(dsn)
	if err != nil {
		return nil, errors.Join(err, b.remove(ctx))
	}
	s := &Server{Name: kind.Name, DSN: dsn, Addr: addr, Origin: origin, kind: kind, backend: b, state: down}
	if err := s.start(ctx); err != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		return nil, errors.Join(err, s.Stop(ctx))
	}
	return s, nil
}

// String describes the server in one line.
func (s *Server) String() string {
	return fmt.Sprintf("server %s %s %s %s", s.Name, s.Version, s.Origin, s.Addr)
}

// Stop ends the server and removes its data. A server from the environment
// runs on. Stopping twice is fine.
func (s *Server) Stop(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.backend == nil || s.state == removed {
		return nil
	}
	var err error
	if s.state == running {
		err = s.backend.stop(ctx)
	}
	if err := errors.Join(err, s.backend.remove(ctx)); err != nil {
		return fmt.Errorf("stop the %s server at %s: %w", s.Name, s.Addr, err)
	}
	s.state = removed
	return nil
}

// Kill ends all of the server's processes at once, as a crash would, and keeps
// its data. For a server from the environment it returns an error that wraps
// [errors.ErrUnsupported].
func (s *Server) Kill(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.ours("kill"); err != nil {
		return err
	}
	if s.state == down {
		return nil
	}
	if err := s.backend.kill(ctx); err != nil {
		return fmt.Errorf("kill the %s server at %s: %w", s.Name, s.Addr, err)
	}
	s.state = down
	return nil
}

// Restart starts the server again, on the same port and with the same data,
// and returns when it answers. A server that is still running is shut down
// cleanly first. For a server from the environment it returns an error that
// wraps [errors.ErrUnsupported].
func (s *Server) Restart(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.ours("restart"); err != nil {
		return err
	}
	if s.state == running {
		if err := s.backend.stop(ctx); err != nil {
			return fmt.Errorf("restart the %s server at %s: %w", s.Name, s.Addr, err)
		}
		s.state = down
	}
	return s.start(ctx)
}

// ours returns an error unless this package started the server.
func (s *Server) ours(action string) error {
	switch {
	case s.backend == nil:
		return fmt.Errorf("cannot %s the %s server at %s, it comes from %s: %w",
			action, s.Name, s.Addr, s.kind.EnvVar, errors.ErrUnsupported)
	case s.state == removed:
		return fmt.Errorf("cannot %s the %s server at %s: it was stopped", action, s.Name, s.Addr)
	}
	return nil
}

// start starts the backend and waits until the server answers. Once the
// backend has started, the state is running: there is something to stop.
func (s *Server) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	if err := s.backend.start(ctx); err != nil {
		return fmt.Errorf("start %s: %w", s.Name, err)
	}
	s.state = running
	version, err := s.kind.await(ctx, s.DSN, s.backend.check)
	if err != nil {
		return fmt.Errorf("start %s: %w", s.Name, err)
	}
	// Later starts find the same programs and leave the field alone, which
	// others may be reading.
	if s.Version == "" {
		s.Version = version
	}
	return nil
}

// await connects until it succeeds, ctx ends or check fails.
func (k *Kind) await(ctx context.Context, dsn string, check func(context.Context) error) (string, error) {
	for {
		attempt, cancel := context.WithTimeout(ctx, probeTimeout)
		version, err := k.engine.probe(attempt, dsn)
		cancel()
		if err == nil {
			return version, nil
		}
		if gone := check(ctx); gone != nil {
			return "", gone
		}
		if ended := pause(ctx, probePause); ended != nil {
			return "", fmt.Errorf("the server does not answer: %w (%w)", err, ended)
		}
	}
}

// pause waits a little, unless ctx ends first.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
