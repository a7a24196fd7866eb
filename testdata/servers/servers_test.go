package servers

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

func TestMain(m *testing.M) { Main(m) }

// everyKind runs a test for each kind of server.
func everyKind(t *testing.T, f func(t *testing.T, kind *Kind)) {
	for _, kind := range Kinds() {
		t.Run(kind.Name, func(t *testing.T) { f(t, kind) })
	}
}

func TestGetSharesOneServer(t *testing.T) {
	everyKind(t, func(t *testing.T, kind *Kind) {
		t.Parallel() // they start side by side
		first := Get(t, kind)
		for range 4 {
			t.Run("parallel", func(t *testing.T) {
				t.Parallel()
				if Get(t, kind) != first {
					t.Error("another server")
				}
			})
		}
		if first.Name != kind.Name || first.Version == "" || first.Addr == "" || first.Origin == "" {
			t.Errorf("incomplete: %s", first)
		}
		if want := "server " + kind.Name + " "; !strings.HasPrefix(first.String(), want) {
			t.Errorf("String() = %q, want %q...", first, want)
		}
	})
}

func TestEnvironmentWins(t *testing.T) {
	everyKind(t, func(t *testing.T, kind *Kind) {
		dsn := Get(t, kind).DSN
		t.Setenv(kind.EnvVar, dsn)
		t.Setenv(kind.ImageVar, "onward-test-no-such-image")
		s, err := Start(t.Context(), kind)
		if err != nil {
			t.Fatal(err)
		}
		if s.DSN != dsn || s.Origin != FromEnvironment || s.Version == "" {
			t.Errorf("got %s with %s", s, s.DSN)
		}
		if err := s.Kill(t.Context()); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("Kill: %v", err)
		}
		if err := s.Restart(t.Context()); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("Restart: %v", err)
		}
		if err := s.Stop(t.Context()); err != nil {
			t.Errorf("Stop: %v", err)
		}
		if _, err := kind.engine.probe(t.Context(), dsn); err != nil {
			t.Errorf("Stop ended a server that is not ours: %v", err)
		}
	})
}

func TestEnvironmentMustAnswer(t *testing.T) {
	everyKind(t, func(t *testing.T, kind *Kind) {
		port, err := freePort()
		if err != nil {
			t.Fatal(err)
		}
		t.Setenv(kind.EnvVar, kind.engine.localDSN(port))
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		s, err := Start(ctx, kind)
		if err == nil {
			t.Fatalf("got %s", s)
		}
		if !strings.Contains(err.Error(), kind.EnvVar) {
			t.Errorf("the error does not name %s: %v", kind.EnvVar, err)
		}
	})
}

func TestChosenImageIsNotReplaced(t *testing.T) {
	everyKind(t, func(t *testing.T, kind *Kind) {
		t.Setenv(OriginVar, "")
		t.Setenv(kind.ImageVar, "localhost:1/onward/no-such-image:0")
		s, err := StartOwn(t.Context(), kind)
		if err == nil {
			t.Fatalf("got %s", s)
		}
		if !strings.Contains(err.Error(), kind.ImageVar) {
			t.Errorf("the error does not name %s: %v", kind.ImageVar, err)
		}
	})
}

// TestNothingFound checks that the user is told what to do, in one line.
func TestNothingFound(t *testing.T) {
	missing := &Kind{
		Name: "missing", EnvVar: "OUTBOX_TEST_MISSING_DSN", ImageVar: "OUTBOX_TEST_MISSING_IMAGE",
		Image: "localhost:1/onward/missing:0", LocalImage: "onward-test-missing:0",
		Package: "missing-server", engine: withoutPrograms{},
	}
	kinds = append(kinds, missing)
	defer func() { kinds = kinds[:len(kinds)-1] }()

	for _, origin := range []string{"", FromContainer, FromLocal} {
		t.Setenv(OriginVar, origin)
		_, err := Start(t.Context(), missing)
		if err == nil {
			t.Fatal("found")
		}
		for _, want := range []string{"apt-get install missing-server", missing.EnvVar} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q: the error does not say %q: %v", origin, want, err)
			}
		}
		if strings.ContainsAny(err.Error(), "\n\r") {
			t.Errorf("%q: more than one line: %q", origin, err)
		}
	}
}

// withoutPrograms is a server that is not installed.
type withoutPrograms struct{ postgres }

func (withoutPrograms) findPrograms() (string, error) {
	return findPrograms(nil, nil, "onward-no-such-program")
}

func TestChosenOrigin(t *testing.T) {
	for _, origin := range []string{FromContainer, FromLocal} {
		t.Run(origin, func(t *testing.T) {
			t.Setenv(OriginVar, origin)
			s, err := StartOwn(t.Context(), Postgres)
			if errors.Is(err, errUnavailable) {
				t.Skip(err)
			}
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = s.Stop(t.Context()) }()
			if s.Origin != origin {
				t.Errorf("got %s", s)
			}
		})
	}
	t.Setenv(OriginVar, "elsewhere")
	if s, err := StartOwn(t.Context(), Postgres); err == nil || !strings.Contains(err.Error(), OriginVar) {
		t.Errorf("got %v, %v", s, err)
	}
}

func TestUnknownKind(t *testing.T) {
	if _, err := Lookup("oracle"); err == nil || !strings.Contains(err.Error(), Postgres.Name) {
		t.Errorf("Lookup: %v", err)
	}
	if kind, err := Lookup(Postgres.Name); err != nil || kind != Postgres {
		t.Errorf("Lookup = %v, %v", kind, err)
	}
	for _, kind := range []*Kind{nil, {Name: "oracle"}, {Name: Postgres.Name}} {
		if _, err := Start(t.Context(), kind); err == nil {
			t.Errorf("Start(%+v) succeeded", kind)
		}
	}
}

func TestSkip(t *testing.T) {
	for value, want := range map[string]bool{
		"": false, "postgres": true, "mysql, postgres": true, "postgresql": false,
	} {
		t.Setenv(SkipVar, value)
		if got := Postgres.Skipped(); got != want {
			t.Errorf("%s=%q: Skipped() = %v", SkipVar, value, got)
		}
	}

	t.Setenv(SkipVar, "postgres")
	skipped := false
	t.Run("get", func(t *testing.T) {
		defer func() { skipped = t.Skipped() }()
		Get(t, Postgres)
	})
	if !skipped {
		t.Error("Get did not skip")
	}
}
