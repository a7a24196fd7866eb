package servers

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

func TestMain(m *testing.M) { Main(m) }

// everyKind runs a test for each kind of server.
func everyKind(t *testing.T, f func(t *testing.T, kind *Kind)) {
	for _, kind := range Kinds() {
		t.Run(kind.Name, func(t *testing.T) { f(t, kind) })
	}
}

// query runs a statement on Postgres and returns the single value it yields.
func query[T any](t *testing.T, dsn, sql string) T {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	var value T
	if err := conn.QueryRow(t.Context(), sql).Scan(&value); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return value
}

// execute runs statements on Postgres.
func execute(t *testing.T, dsn string, statements ...string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	for _, sql := range statements {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
}

func TestGetSharesOneServer(t *testing.T) {
	everyKind(t, func(t *testing.T, kind *Kind) {
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
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
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
	return findPrograms(nil, "onward-no-such-program")
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

func TestCreateDatabase(t *testing.T) {
	server := Get(t, Postgres)
	const current = "SELECT current_database()::text"
	var first, second string
	var forgotten *pgx.Conn
	t.Run("use", func(t *testing.T) {
		a, b := CreateDatabase(t, server), CreateDatabase(t, server)
		first, second = query[string](t, a, current), query[string](t, b, current)
		if first == second {
			t.Errorf("both are %s", first)
		}
		// What a failed test may leave: a slot, a prepared transaction and a
		// connection.
		execute(t, b, "SELECT pg_create_logical_replication_slot('left', 'pgoutput')")
		execute(t, a, "CREATE TABLE t (x int)",
			"BEGIN", "INSERT INTO t VALUES (1)", "PREPARE TRANSACTION 'it''s left'")
		conn, err := pgx.Connect(t.Context(), a)
		if err != nil {
			t.Fatal(err)
		}
		forgotten = conn
	})
	defer func() { _ = forgotten.Close(t.Context()) }()
	left := query[int](t, server.DSN,
		"SELECT count(*)::int FROM pg_database WHERE datname IN ('"+first+"', '"+second+"')")
	if left != 0 {
		t.Errorf("%d databases are left", left)
	}
}

func TestPostgresSettings(t *testing.T) {
	server := Get(t, Postgres)
	if server.Origin == FromEnvironment {
		t.Skip("the settings of a server from the environment are its owner's")
	}
	for name, want := range map[string]string{
		"max_connections": "300", "max_prepared_transactions": "64",
		"wal_level": "logical", "server_encoding": "UTF8",
	} {
		if got := query[string](t, server.DSN, "SHOW "+name); got != want {
			t.Errorf("%s = %s, want %s", name, got, want)
		}
	}
}

func TestPostgresWithDatabase(t *testing.T) {
	for dsn, want := range map[string]string{
		"postgres://u:p@h:1/old?sslmode=disable":   "postgres://u:p@h:1/new?sslmode=disable",
		"postgresql://h/?dbname=old&x=1":           "postgresql://h/new?x=1",
		"host=h dbname=old user=u sslmode=disable": "host=h dbname=old user=u sslmode=disable dbname=new",
	} {
		got, err := postgres{}.withDatabase(dsn, "new")
		if err != nil || got != want {
			t.Errorf("withDatabase(%q) = %q, %v, want %q", dsn, got, err, want)
		}
		config, err := pgx.ParseConfig(got)
		if err != nil || config.Database != "new" {
			t.Errorf("%q leads to %v, %v", got, config, err)
		}
	}
}
