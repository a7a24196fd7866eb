package servers

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// throughPooler is a client that keeps nothing in its session.
const throughPooler = "&default_query_exec_mode=exec"

const backendPID = "SELECT pg_backend_pid()"

// pooled connects until the end of the test.
func pooled(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn+throughPooler)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// ask returns the single value of a statement.
func ask[T any](t *testing.T, conn *pgx.Conn, sql string) T {
	t.Helper()
	var value T
	if err := conn.QueryRow(t.Context(), sql).Scan(&value); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return value
}

// do runs statements one by one.
func do(t *testing.T, conn *pgx.Conn, statements ...string) {
	t.Helper()
	for _, sql := range statements {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
}

// ownPooler starts a pooler for this test, in front of a new database.
func ownPooler(t *testing.T, size int) (s *Server, dsn string) {
	t.Helper()
	if newPooler(&pgconn.Config{}, size).Skipped() {
		t.Skipf("%s is in %s", poolerName, SkipVar)
	}
	config, err := pgconn.ParseConfig(CreateDatabase(t, Get(t, Postgres)))
	if err != nil {
		t.Fatal(err)
	}
	s, err = startPooler(t.Context(), newPooler(config, size))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return s, poolerDSN(s.Addr, config.User, config.Database)
}

// waits reports whether a client waits for a connection to the database.
func waits(t *testing.T, s *Server, database string) bool {
	t.Helper()
	console, err := pgx.Connect(t.Context(), s.DSN)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = console.Close(t.Context()) }()
	rows, err := console.Query(t.Context(), "SHOW POOLS", pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		t.Fatal(err)
	}
	pools, err := pgx.CollectRows(rows, pgx.RowToMap)
	if err != nil {
		t.Fatal(err)
	}
	for _, pool := range pools {
		if pool["database"] == database {
			// Versions differ in the number's type.
			return fmt.Sprint(pool["cl_waiting"]) != "0"
		}
	}
	return false
}

// TestPgBouncerSharesAConnection has two clients and one server connection.
func TestPgBouncerSharesAConnection(t *testing.T) {
	s, dsn := ownPooler(t, 1)
	a, b := pooled(t, dsn), pooled(t, dsn)
	pid := ask[int](t, a, backendPID)
	if other := ask[int](t, b, backendPID); other != pid {
		t.Errorf("the clients have the backends %d and %d", pid, other)
	}
	// So a session is nobody's own.
	do(t, a, "SET statement_timeout = '54321ms'")
	if got := ask[string](t, b, "SHOW statement_timeout"); got != "54321ms" {
		t.Errorf("statement_timeout = %s", got)
	}

	// A transaction has the connection for itself.
	do(t, a, "BEGIN")
	if got := ask[int](t, a, backendPID); got != pid {
		t.Errorf("the transaction has the backend %d, not %d", got, pid)
	}
	type result struct {
		pid int
		err error
	}
	answer := make(chan result, 1)
	go func() {
		var r result
		r.err = b.QueryRow(t.Context(), backendPID).Scan(&r.pid)
		answer <- r
	}()
	for deadline := time.Now().Add(adminTimeout); !waits(t, s, b.Config().Database); time.Sleep(probePause) {
		select {
		case r := <-answer:
			t.Fatalf("answered during the other's transaction: %+v", r)
		default:
		}
		if time.Now().After(deadline) {
			t.Fatal("the client does not wait")
		}
	}
	do(t, a, "COMMIT")
	if r := <-answer; r.err != nil || r.pid != pid {
		t.Errorf("after the transaction: %+v, want the backend %d", r, pid)
	}
}

// TestPgBouncerMovesAClient has a client on two server connections in turn.
func TestPgBouncerMovesAClient(t *testing.T) {
	dsn := PgBouncer(t, CreateDatabase(t, Get(t, Postgres)))
	a, b := pooled(t, dsn), pooled(t, dsn)
	first := ask[int](t, a, backendPID)
	do(t, b, "BEGIN")
	if taken := ask[int](t, b, backendPID); taken != first {
		t.Errorf("the transaction has the backend %d although %d is idle", taken, first)
	}
	if second := ask[int](t, a, backendPID); second == first {
		t.Errorf("both clients have the backend %d during a transaction", first)
	}
	do(t, b, "COMMIT")
}

func TestPgBouncerServesEveryDatabase(t *testing.T) {
	server := Get(t, Postgres)
	var names []string
	var gone []*pgx.Conn
	defer func() {
		for _, conn := range gone {
			_ = conn.Close(t.Context())
		}
	}()
	t.Run("use", func(t *testing.T) {
		addrs := map[string]bool{}
		for range 2 {
			direct := CreateDatabase(t, server)
			dsn := PgBouncer(t, direct)
			addr, err := postgres{}.address(dsn)
			if err != nil {
				t.Fatal(err)
			}
			addrs[addr] = true
			const current = "SELECT current_database()::text"
			name := query[string](t, dsn+throughPooler, current)
			if want := query[string](t, direct, current); name != want {
				t.Errorf("in %s, want %s", name, want)
			}
			names = append(names, name)
			// It is still connected, and in a transaction, when the database
			// is dropped.
			conn, err := pgx.Connect(t.Context(), dsn+throughPooler)
			if err != nil {
				t.Fatal(err)
			}
			gone = append(gone, conn)
			do(t, conn, "BEGIN", "SELECT 1")
		}
		if len(addrs) != 1 {
			t.Errorf("%d poolers: %v", len(addrs), addrs)
		}
	})
	if len(gone) != 2 {
		return // failed or skipped
	}
	left := query[int](t, server.DSN,
		"SELECT count(*)::int FROM pg_database WHERE datname IN ('"+strings.Join(names, "', '")+"')")
	if left != 0 {
		t.Errorf("%d databases are left", left)
	}
	ctx, cancel := context.WithTimeout(t.Context(), adminTimeout)
	defer cancel()
	for _, conn := range gone {
		if _, err := conn.Exec(ctx, "SELECT 1"); err == nil || ctx.Err() != nil {
			t.Errorf("a client of a dropped database: %v", err)
		}
	}
	// The others are served on.
	dsn := PgBouncer(t, CreateDatabase(t, server))
	if got := query[int](t, dsn+throughPooler, "SELECT 42"); got != 42 {
		t.Errorf("got %d", got)
	}
}

func TestPgBouncerEndedBackend(t *testing.T) {
	direct := CreateDatabase(t, Get(t, Postgres))
	dsn := PgBouncer(t, direct)
	a := pooled(t, dsn)
	do(t, a, "BEGIN")
	pid := ask[int](t, a, backendPID)
	if !query[bool](t, direct, "SELECT pg_terminate_backend("+strconv.Itoa(pid)+", 10000)") {
		t.Fatal("the backend does not end")
	}
	if _, err := a.Exec(t.Context(), "COMMIT"); err == nil {
		t.Error("a dead transaction was committed")
	}
	if got := query[int](t, dsn+throughPooler, backendPID); got == pid {
		t.Errorf("still backend %d", got)
	}
}

// TestPgBouncerQuotes has a name and a password that need quotes.
func TestPgBouncerQuotes(t *testing.T) {
	engine := newPooler(&pgconn.Config{Host: "::1", Port: 5, User: "o'hara", Password: "a ' b"}, 7).engine.(pooler)
	for _, want := range []string{
		"* = host='::1' port=5 user='o''hara' password='a '' b'\n",
		"listen_port = 12\n", "default_pool_size = 7\n", "pool_mode = transaction\n",
	} {
		if got := engine.settings(12); !strings.Contains(got, want) {
			t.Errorf("%q is not in\n%s", want, got)
		}
	}
	config, err := pgx.ParseConfig(poolerDSN("127.0.0.1:6", "o'hara", "a /?b"))
	if err != nil || config.User != "o'hara" || config.Database != "a /?b" || config.Port != 6 {
		t.Errorf("got %+v, %v", config, err)
	}
}

func TestPgBouncerSkip(t *testing.T) {
	t.Setenv(SkipVar, "mysql, "+poolerName)
	skipped := false
	t.Run("get", func(t *testing.T) {
		defer func() { skipped = t.Skipped() }()
		PgBouncer(t, "postgres://postgres@127.0.0.1:1/postgres")
	})
	if !skipped {
		t.Error("PgBouncer did not skip")
	}
}

// withoutPooler is a machine on which PgBouncer is not installed.
type withoutPooler struct{ pooler }

func (withoutPooler) findPrograms() (string, error) {
	return findPrograms(nil, nil, "onward-no-such-program")
}

// TestPgBouncerMissing checks that the user is told what to do, in one line.
func TestPgBouncerMissing(t *testing.T) {
	kind := newPooler(&pgconn.Config{}, 1)
	kind.engine = withoutPooler{}
	s, err := startPooler(t.Context(), kind)
	if !errors.Is(err, errUnavailable) {
		t.Fatalf("got %v, %v", s, err)
	}
	for _, want := range []string{"apt-get install pgbouncer", SkipVar + "=" + poolerName} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q: %v", want, err)
		}
	}
	if strings.ContainsAny(err.Error(), "\n\r") {
		t.Errorf("more than one line: %q", err)
	}
}
