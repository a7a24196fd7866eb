package servers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Postgres is PostgreSQL: version 18 in a container, otherwise the newest one
// on this machine.
var Postgres = &Kind{
	Name:        "postgres",
	EnvVar:      "OUTBOX_TEST_POSTGRES_DSN",
	ImageVar:    "OUTBOX_TEST_POSTGRES_IMAGE",
	Image:       "postgres:18",
	LocalImage:  "onward-test-postgres:18",
	Package:     "postgresql",
	script:      []string{"postgres.sh", "18", "sid"},
	accounts:    []string{"postgres", "nobody"},
	stopSignal:  syscall.SIGINT,  // "fast" shutdown
	deathSignal: syscall.SIGQUIT, // "immediate" shutdown, frees shared memory
	engine:      postgres{},
}

// Postgres15 is PostgreSQL 15 and no other version.
var Postgres15 = &Kind{
	Name:        "postgres15",
	EnvVar:      "OUTBOX_TEST_POSTGRES15_DSN",
	ImageVar:    "OUTBOX_TEST_POSTGRES15_IMAGE",
	Image:       "postgres:15",
	LocalImage:  "onward-test-postgres:15",
	Package:     "postgresql-15",
	script:      []string{"postgres.sh", "15", "bookworm"},
	pinned:      true,
	accounts:    Postgres.accounts,
	stopSignal:  Postgres.stopSignal,
	deathSignal: Postgres.deathSignal,
	engine:      postgres{major: "15"},
}

type postgres struct {
	major   string // the only version that will do, "" for any
	durable bool
}

func (p postgres) flushing() engine { return postgres{major: p.major, durable: true} }

// settings are the server's arguments.
func (p postgres) settings() []string {
	fsync := "fsync=off"
	if p.durable {
		fsync = "fsync=on"
	}
	return []string{
		"-c", "max_connections=300",
		"-c", "max_prepared_transactions=64",
		"-c", "wal_level=logical",
		"-c", fsync,
	}
}

func (postgres) address(dsn string) (string, error) {
	config, err := pgconn.ParseConfig(dsn)
	if err != nil {
		return "", err
	}
	return net.JoinHostPort(config.Host, strconv.Itoa(int(config.Port))), nil
}

func (p postgres) probe(ctx context.Context, dsn string) (version string, err error) {
	err = p.connected(ctx, dsn, func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, "SHOW server_version").Scan(&version)
	})
	// Packagers add the name of their package.
	version, _, _ = strings.Cut(version, " ")
	if major, _, _ := strings.Cut(version, "."); err == nil && p.major != "" && p.major != major {
		return "", fmt.Errorf("PostgreSQL %s is wanted, this is %s", p.major, version)
	}
	return version, err
}

func (p postgres) createDatabase(ctx context.Context, dsn, name string) (string, error) {
	err := p.connected(ctx, dsn, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "CREATE DATABASE "+pgx.Identifier{name}.Sanitize())
		return err
	})
	if err != nil {
		return "", err
	}
	return p.withDatabase(dsn, name)
}

func (p postgres) dropDatabase(ctx context.Context, dsn, name string) error {
	return p.connected(ctx, dsn, func(conn *pgx.Conn) error {
		if err := p.rollbackPrepared(ctx, conn, dsn, name); err != nil {
			return err
		}
		for {
			_, err := conn.Exec(ctx, "DROP DATABASE IF EXISTS "+pgx.Identifier{name}.Sanitize()+" WITH (FORCE)")
			// A replication slot is active until its sender has noticed that
			// the client is gone.
			if pgErr := (*pgconn.PgError)(nil); !errors.As(err, &pgErr) || pgErr.Code != "55006" {
				return err
			}
			if pause(ctx, probePause) != nil {
				return err
			}
		}
	})
}

// rollbackPrepared ends the transactions that a failed test left prepared. They
// would keep the database, even from FORCE, and can be ended only from inside.
func (p postgres) rollbackPrepared(ctx context.Context, admin *pgx.Conn, dsn, name string) error {
	rows, err := admin.Query(ctx, "SELECT gid FROM pg_prepared_xacts WHERE database = $1", name)
	if err != nil {
		return err
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(ids) == 0 {
		return err
	}
	inside, err := p.withDatabase(dsn, name)
	if err != nil {
		return err
	}
	return p.connected(ctx, inside, func(conn *pgx.Conn) error {
		var errs []error
		for _, id := range ids {
			_, err := conn.Exec(ctx, "ROLLBACK PREPARED '"+strings.ReplaceAll(id, "'", "''")+"'")
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	})
}

// connected runs f on a connection of its own.
func (postgres) connected(ctx context.Context, dsn string, f func(*pgx.Conn) error) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	// The work is done; how the farewell goes does not matter.
	defer func() { _ = conn.Close(ctx) }()
	return f(conn)
}

// withDatabase returns the DSN with another database, in the form it came in.
func (postgres) withDatabase(dsn, name string) (string, error) {
	if !strings.HasPrefix(dsn, "postgres://") && !strings.HasPrefix(dsn, "postgresql://") {
		return dsn + " dbname=" + name, nil // the last one counts
	}
	u, err := url.Parse(dsn)
	if err != nil {
		return "", err
	}
	query := u.Query()
	query.Del("dbname")
	u.Path, u.RawPath, u.RawQuery = "/"+name, "", query.Encode()
	return u.String(), nil
}

func (p postgres) container() containerSpec {
	return containerSpec{
		port: "5432/tcp",
		// A password costs both sides thousands of hashes a connection.
		env:    map[string]string{"POSTGRES_HOST_AUTH_METHOD": "trust"},
		cmd:    append([]string{"postgres"}, p.settings()...),
		listen: p.listen,
		dsn: func(host string, port int) string {
			return fmt.Sprintf("postgres://postgres@%s/postgres?sslmode=disable", net.JoinHostPort(host, strconv.Itoa(port)))
		},
	}
}

func (postgres) listen(port int) []string {
	return []string{"-c", "listen_addresses=127.0.0.1", "-c", "port=" + strconv.Itoa(port)}
}

func (p postgres) findPrograms() (string, error) {
	if p.major != "" {
		return findPrograms(func(dir string) bool {
			version := programVersion(filepath.Join(dir, "postgres"))
			return strings.Contains(version, " "+p.major+".")
		}, []string{"/usr/lib/postgresql/" + p.major + "/bin"}, "postgres", "initdb")
	}
	// Debian keeps the major versions apart, and out of PATH.
	dirs, err := filepath.Glob("/usr/lib/postgresql/*/bin")
	if err != nil {
		return "", err
	}
	slices.SortFunc(dirs, func(a, b string) int {
		return cmp.Compare(debianVersion(b), debianVersion(a))
	})
	return findPrograms(nil, dirs, "postgres", "initdb")
}

// debianVersion returns the version in a path such as
// /usr/lib/postgresql/15/bin, and 0 for anything else.
func debianVersion(dir string) float64 {
	version, _ := strconv.ParseFloat(filepath.Base(filepath.Dir(dir)), 64)
	return version
}

func (postgres) initialise(ctx context.Context, l *local) error {
	args := []string{
		"--pgdata", l.data(), "--username=postgres", "--auth=trust",
		"--encoding=UTF8", "--no-locale", "--no-sync",
	}
	// initdb lets trusted users in from the loopback interface only. The
	// collation is a linguistic one where the server can, as with most users,
	// so that a test notices where bytewise order was only hoped for.
	linguistic := append(slices.Clone(args), "--locale-provider=icu", "--icu-locale=en-US")
	if l.run(ctx, l.program("initdb"), linguistic...) == nil {
		return nil
	}
	return l.run(ctx, l.program("initdb"), args...)
}

func (p postgres) command(l *local) (string, []string) {
	return l.program("postgres"), slices.Concat([]string{
		"-D", l.data(),
		"-c", "unix_socket_directories=" + l.dir.path,
		// In the data directory, which is removed even after a kill.
		"-c", "dynamic_shared_memory_type=mmap",
	}, p.listen(l.port), p.settings())
}

func (postgres) localDSN(port int) string {
	return fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", port)
}
