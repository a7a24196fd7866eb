package servers

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"
)

// origins starts a server of each engine in each way that this machine offers.
func origins(t *testing.T, f func(t *testing.T, s *Server)) {
	starts := map[string]func(context.Context, *Kind) (*Server, error){
		FromLocal: startLocal, FromContainer: startContainer,
	}
	for _, kind := range []*Kind{Postgres, MySQL, MariaDB} {
		for origin, start := range starts {
			t.Run(kind.Name+"/"+origin, func(t *testing.T) {
				t.Parallel()
				skip(t, kind)
				s, err := start(t.Context(), kind)
				if errors.Is(err, errUnavailable) {
					t.Skip(err)
				}
				if err != nil {
					t.Fatal(err)
				}
				defer func() {
					if err := s.Stop(context.Background()); err != nil {
						t.Error(err)
					}
				}()
				t.Log(s)
				if s.Origin != origin {
					t.Errorf("origin %s", s.Origin)
				}
				f(t, s)
			})
		}
	}
}

// TestLifecycle is one test since starting takes seconds.
func TestLifecycle(t *testing.T) {
	origins(t, func(t *testing.T, s *Server) {
		dsn := CreateDatabase(t, s)
		execute(t, dsn, "CREATE TABLE t (x int)", "INSERT INTO t VALUES (1)")
		restartKeepsData(t, s, dsn)
		killThenRestartRecovers(t, s, dsn)
		stopLeavesNothing(t, s)
	})
}

func restartKeepsData(t *testing.T, s *Server, dsn string) {
	t.Helper()
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := query[int](t, dsn, "SELECT sum(x) FROM t"); got != 1 {
		t.Errorf("after a restart: %d", got)
	}
}

func killThenRestartRecovers(t *testing.T, s *Server, dsn string) {
	t.Helper()
	execute(t, dsn, "INSERT INTO t VALUES (41)")
	// A backend that is busy does not notice that its parent is gone.
	sleeper := session(t, dsn)
	asleep := make(chan error, 1)
	go func() {
		_, err := sleeper.ExecContext(t.Context(), dialectOf(s.kind).sleep)
		asleep <- err
	}()
	time.Sleep(200 * time.Millisecond)

	if err := s.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-asleep; err == nil {
		t.Error("a session survived")
	}
	if _, err := s.kind.engine.probe(t.Context(), s.DSN); err == nil {
		t.Error("the server still answers")
	}
	if err := s.Kill(t.Context()); err != nil {
		t.Errorf("second Kill: %v", err)
	}
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := query[int](t, dsn, "SELECT sum(x) FROM t"); got != 42 {
		t.Errorf("after a kill: %d", got)
	}
}

func stopLeavesNothing(t *testing.T, s *Server) {
	t.Helper()
	if err := s.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Errorf("Stop of a killed server: %v", err)
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Errorf("second Stop: %v", err)
	}
	if err := s.Restart(t.Context()); err == nil {
		t.Error("Restart of a removed server succeeded")
	}
	switch b := s.backend.(type) {
	case *local:
		if _, err := os.Stat(b.dir.path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left: %v", b.dir.path, err)
		}
	case *containerized:
		if state, err := b.container.State(t.Context()); err == nil {
			t.Errorf("the container is left: %s", state.Status)
		}
		if _, err := os.Stat(b.owner.Name()); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left: %v", b.owner.Name(), err)
		}
	}
}

func TestPrivate(t *testing.T) {
	var s *Server
	t.Run("use", func(t *testing.T) {
		t.Setenv(Postgres.EnvVar, "postgres://nobody.invalid/")
		s = Private(t, Postgres)
		if err := s.Kill(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := s.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
	if s == nil || s.state != removed {
		t.Errorf("not stopped: %v", s)
	}
}
