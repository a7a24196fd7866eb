package servers

import (
	"context"
	"database/sql"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib"
)

// session connects until the end of the test.
func session(t *testing.T, dsn string) *sql.Conn {
	t.Helper()
	driver := "mysql"
	if strings.HasPrefix(dsn, "postgres") {
		driver = "pgx"
	}
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// query runs a statement and returns the single value it yields.
func query[T any](t *testing.T, dsn, statement string) T {
	t.Helper()
	var value T
	conn := session(t, dsn)
	if err := conn.QueryRowContext(t.Context(), statement).Scan(&value); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
	_ = conn.Close()
	return value
}

// execute runs statements in one session.
func execute(t *testing.T, dsn string, statements ...string) {
	t.Helper()
	conn := session(t, dsn)
	for _, statement := range statements {
		if _, err := conn.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	_ = conn.Close()
}

// dialect is what these tests say differently on each kind of server.
type dialect struct{ current, list, sleep string }

func dialectOf(kind *Kind) dialect {
	if _, ok := kind.engine.(postgres); ok {
		return dialect{
			current: "SELECT current_database()::text",
			list:    "SELECT count(*) FROM pg_database WHERE datname IN ",
			sleep:   "SELECT pg_sleep(60)",
		}
	}
	return dialect{
		current: "SELECT DATABASE()",
		list:    "SELECT count(*) FROM information_schema.schemata WHERE schema_name IN ",
		sleep:   "DO SLEEP(60)",
	}
}

func TestCreateDatabase(t *testing.T) {
	everyKind(t, func(t *testing.T, kind *Kind) {
		t.Parallel()
		server := Get(t, kind)
		d := dialectOf(kind)
		var first, second string
		t.Run("use", func(t *testing.T) {
			a, b := CreateDatabase(t, server), CreateDatabase(t, server)
			first, second = query[string](t, a, d.current), query[string](t, b, d.current)
			if first == second {
				t.Errorf("both are %s", first)
			}
			forget(t, kind, a, b)
		})
		left := query[int](t, server.DSN, d.list+"('"+first+"', '"+second+"')")
		if left != 0 {
			t.Errorf("%d databases are left", left)
		}
	})
}

// forget leaves what a failed test may leave.
func forget(t *testing.T, kind *Kind, a, b string) {
	ctx := context.Background() // outlives the test
	if _, ok := kind.engine.(postgres); ok {
		// A slot, a prepared transaction and a connection.
		execute(t, b, "SELECT pg_create_logical_replication_slot('left_"+kind.Name+"', 'pgoutput')")
		execute(t, a, "CREATE TABLE t (x int)",
			"BEGIN", "INSERT INTO t VALUES (1)", "PREPARE TRANSACTION 'it''s left'")
		if _, err := pgx.Connect(ctx, a); err != nil {
			t.Fatal(err)
		}
		return
	}
	// A transaction, which keeps its table.
	db, err := sql.Open("mysql", a)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, statement := range []string{"CREATE TABLE t (x int)", "BEGIN", "INSERT INTO t VALUES (1)"} {
		if _, err := conn.ExecContext(ctx, statement); err != nil {
			t.Fatal(err)
		}
	}
}

// TestMain's output is for people; the driver would add what a server that is
// killed on purpose leads to.
func init() { _ = mysql.SetLogger(&mysql.NopLogger{}) }
