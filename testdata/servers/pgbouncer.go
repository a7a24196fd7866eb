package servers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// poolerName is what users call PgBouncer in [SkipVar].
const poolerName = "pgbouncer"

// poolSize is the number of server connections per database. Clients with more
// transactions than that at a time wait for each other.
const poolSize = 20

// PgBouncer returns a DSN that leads to the database of the given one through
// PgBouncer, which hands out its connections for a transaction at a time. So
// nothing that belongs to a session, such as a prepared statement, can be
// relied on from one transaction to the next. Settings in the given DSN are
// not taken over, since PgBouncer lets few of them pass.
//
// All databases of a server share one PgBouncer, which runs on this machine.
// The first call starts it and logs it; [Main] stops it. If it is not installed,
// the test fails, unless the user skips it with OUTBOX_TEST_SKIP=pgbouncer.
func PgBouncer(t testing.TB, dsn string) string {
	t.Helper()
	config, err := pgconn.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	kind := newPooler(config, poolSize)
	if kind.Skipped() {
		t.Skipf("%s is in %s", kind.Name, SkipVar)
	}
	get, err := sharedPooler(t, kind)
	if err != nil {
		t.Fatal(err)
	}
	s, err := get()
	if err != nil {
		t.Fatal(err)
	}
	return poolerDSN(s.Addr, config.User, config.Database)
}

// sharedPooler returns what starts the pooler, or has started it, among the
// servers that Main stops.
func sharedPooler(t testing.TB, kind *Kind) (func() (*Server, error), error) {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	ctx := shared.ctx
	if ctx == nil {
		return nil, errors.New("nobody would stop PgBouncer: add 'func TestMain(m *testing.M) { servers.Main(m) }' to the package")
	}
	for other, get := range shared.servers {
		if other.engine == kind.engine {
			return get, nil
		}
	}
	get := sync.OnceValues(func() (*Server, error) {
		ctx, cancel := context.WithTimeout(ctx, startTimeout)
		defer cancel()
		s, err := startPooler(ctx, kind)
		if err == nil {
			t.Log(s)
		}
		return s, err
	})
	shared.servers[kind] = get
	return get, nil
}

// pooler is PgBouncer in front of one server. It is an engine for the sake of
// what runs a local server, and creates no databases.
type pooler struct {
	postgres
	host     string
	port     uint16
	user     string
	password string
	tls      bool
	size     int
}

// newPooler returns the kind of a pooler in front of one server. It is not one
// of Kinds, whose tests need a database.
func newPooler(server *pgconn.Config, size int) *Kind {
	return &Kind{
		Name:     poolerName,
		Package:  "pgbouncer",
		accounts: Postgres.accounts,
		// A pooler has nothing to lose, and which signal ends it without
		// waiting for its clients differs between versions.
		stopSignal:  syscall.SIGKILL,
		deathSignal: syscall.SIGKILL,
		engine: pooler{
			host: server.Host, port: server.Port,
			user: server.User, password: server.Password,
			tls: server.TLSConfig != nil, size: size,
		},
	}
}

// startPooler starts a pooler of a kind that newPooler made.
func startPooler(ctx context.Context, kind *Kind) (*Server, error) {
	programs, err := kind.engine.findPrograms()
	if err != nil {
		return nil, fmt.Errorf("no %s: run 'apt-get install %s' or set %s=%s (%w)",
			kind.Name, kind.Package, SkipVar, kind.Name, err)
	}
	owner, err := unprivileged(kind.accounts)
	if err != nil {
		return nil, err
	}
	dir, err := newScratch(kind.Name, owner)
	if err != nil {
		return nil, err
	}
	l := &local{kind: kind, programs: programs, dir: dir, account: owner}
	if l.port, err = freePort(); err != nil {
		return nil, errors.Join(err, dir.remove())
	}
	// The port is part of what initialise writes.
	if err := kind.engine.initialise(ctx, l); err != nil {
		return nil, errors.Join(fmt.Errorf("initialise %s: %w", kind.Name, err), dir.remove())
	}
	return launch(ctx, kind, FromLocal, kind.engine.localDSN(l.port), l)
}

// probe asks PgBouncer itself, so that no connection to the server is opened.
// Its console knows the simple protocol only.
func (p pooler) probe(ctx context.Context, dsn string) (version string, err error) {
	err = p.connected(ctx, dsn, func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, "SHOW VERSION", pgx.QueryExecModeSimpleProtocol).Scan(&version)
	})
	return strings.TrimPrefix(version, "PgBouncer "), err
}

func (pooler) findPrograms() (string, error) {
	return findPrograms(nil, []string{"/usr/sbin"}, "pgbouncer")
}

// settings is the configuration file. What it leaves out has PgBouncer's
// default: server connections are not reset between transactions.
func (p pooler) settings(port int) string {
	// A fixed user lets everybody in as that one: auth_type "any".
	target := fmt.Sprintf("host=%s port=%d user=%s", quote(p.host), p.port, quote(p.user))
	if p.password != "" { // two quotes with nothing in between are an error
		target += " password=" + quote(p.password)
	}
	tls := "disable"
	if p.tls {
		tls = "prefer"
	}
	return strings.Join([]string{
		"[databases]",
		"* = " + target,
		"[pgbouncer]",
		"pool_mode = transaction",
		"auth_type = any",
		"listen_addr = 127.0.0.1",
		"listen_port = " + strconv.Itoa(port),
		"unix_socket_dir =",
		"default_pool_size = " + strconv.Itoa(p.size),
		"max_client_conn = 200",
		"server_tls_sslmode = " + tls,
		// A failed login, as to a database that was dropped, is not to stop the
		// next one for the default of 15 seconds.
		"server_login_retry = 1",
		"log_connections = 0",
		"log_disconnections = 0",
		"",
	}, "\n")
}

// quote quotes a value of a connection string in PgBouncer's configuration.
func quote(value string) string {
	return "'" + strings.ReplaceAll(value, "'", "''") + "'"
}

func (p pooler) file(l *local) string { return filepath.Join(l.dir.path, "pgbouncer.ini") }

func (p pooler) initialise(_ context.Context, l *local) error {
	// Readable to the account, in a directory that nobody else can enter.
	return os.WriteFile(p.file(l), []byte(p.settings(l.port)), 0o644)
}

func (p pooler) command(l *local) (string, []string) {
	return l.program("pgbouncer"), []string{p.file(l)}
}

// localDSN leads to PgBouncer's console.
func (pooler) localDSN(port int) string {
	return poolerDSN(net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), "pgbouncer", "pgbouncer")
}

func poolerDSN(addr, user, database string) string {
	u := url.URL{
		Scheme: "postgres", User: url.User(user), Host: addr, Path: "/" + database,
		RawQuery: "sslmode=disable",
	}
	return u.String()
}
