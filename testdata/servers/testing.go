package servers

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Limits for what a test waits for: starting may include pulling an image, or
// building one.
const (
	startTimeout = 8 * time.Minute
	adminTimeout = 30 * time.Second
)

// shared holds the servers of this test binary, by kind.
var shared struct {
	mu      sync.Mutex
	ctx     context.Context // ends with Main, nil before
	servers map[*Kind]func() (*Server, error)
}

// Main runs the tests of a package, prints which servers they shared and stops
// these, also when the run is interrupted:
//
//	func TestMain(m *testing.M) { servers.Main(m) }
func Main(m *testing.M) {
	ctx, cancel := context.WithCancel(context.Background())
	shared.mu.Lock()
	shared.ctx, shared.servers = ctx, map[*Kind]func() (*Server, error){}
	shared.mu.Unlock()

	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt, syscall.SIGTERM)
	go func() {
		if _, ok := <-interrupts; ok {
			cancel()
			stopShared()
			os.Exit(1)
		}
	}()
	code := m.Run()
	signal.Stop(interrupts)
	close(interrupts)
	cancel()
	if !stopShared() && code == 0 {
		os.Exit(1)
	}
	// When TestMain returns, the process exits with the tests' code.
}

// stopShared reports whether all went well.
func stopShared() bool {
	ctx, cancel := context.WithTimeout(context.Background(), 2*stopTimeout)
	defer cancel()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	var errs []error
	for _, get := range shared.servers {
		// The user of a server that failed to start knows already.
		if s, err := get(); err == nil {
			fmt.Fprintln(os.Stderr, "tests ran on", s)
			errs = append(errs, s.Stop(ctx))
		}
	}
	clear(shared.servers)
	if err := errors.Join(errs...); err != nil {
		fmt.Fprintln(os.Stderr, "servers:", err)
		return false
	}
	return true
}

// Get returns the server of this kind that all tests of this binary share. The
// first call starts it and logs which one it is; [Main] stops it. A server that
// cannot be had fails the test, unless the user skips it through [SkipVar].
func Get(t testing.TB, kind *Kind) *Server {
	t.Helper()
	skip(t, kind)
	shared.mu.Lock()
	ctx := shared.ctx
	if ctx == nil {
		shared.mu.Unlock()
		t.Fatal("nobody would stop the server: add 'func TestMain(m *testing.M) { servers.Main(m) }' to the package")
	}
	get, ok := shared.servers[kind]
	if !ok {
		get = sync.OnceValues(func() (*Server, error) {
			ctx, cancel := context.WithTimeout(ctx, startTimeout)
			defer cancel()
			s, err := Start(ctx, kind)
			if err == nil {
				t.Log(s)
			}
			return s, err
		})
		shared.servers[kind] = get
	}
	shared.mu.Unlock()
	s, err := get()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Private starts a server for this test alone, which it may kill and restart,
// and stops it when the test ends. It never comes from the environment.
func Private(t testing.TB, kind *Kind) *Server {
	t.Helper()
	skip(t, kind)
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	s, err := StartOwn(ctx, kind)
	if err != nil {
		t.Fatal(err)
	}
	t.Log(s)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*stopTimeout)
		defer cancel()
		if err := s.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	return s
}

// skip skips the test if the user asked for it.
func skip(t testing.TB, kind *Kind) {
	t.Helper()
	if err := kind.known(); err != nil {
		t.Fatal(err)
	}
	if kind.Skipped() {
		t.Skipf("%s is in %s", kind.Name, SkipVar)
	}
}

// CreateDatabase creates an empty database and returns its DSN. The database is
// dropped when the test ends, whoever is still connected to it.
func CreateDatabase(t testing.TB, server *Server) (dsn string) {
	t.Helper()
	random := make([]byte, 8)
	_, _ = rand.Read(random) // never fails
	name := "outbox_test_" + hex.EncodeToString(random)

	engine := server.kind.engine
	ctx, cancel := context.WithTimeout(t.Context(), adminTimeout)
	defer cancel()
	dsn, err := engine.createDatabase(ctx, server.DSN, name)
	if err != nil {
		t.Fatalf("create a database on the %s server at %s: %v", server.Name, server.Addr, err)
	}
	t.Cleanup(func() {
		if !server.isRunning() {
			return // its data go with it
		}
		ctx, cancel := context.WithTimeout(context.Background(), adminTimeout)
		defer cancel()
		if err := engine.dropDatabase(ctx, server.DSN, name); err != nil {
			t.Errorf("drop database %s on the %s server at %s: %v", name, server.Name, server.Addr, err)
		}
	})
	return dsn
}

// isRunning reports whether the server should answer.
func (s *Server) isRunning() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state == running
}
