package servers

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// MariaDB is MariaDB.
var MariaDB = &Kind{
	Name:       "mariadb",
	EnvVar:     "OUTBOX_TEST_MARIADB_DSN",
	ImageVar:   "OUTBOX_TEST_MARIADB_IMAGE",
	Image:      "mariadb:10.11",
	LocalImage: "onward-test-mariadb:latest",
	// The second brings a program that mariadb-install-db calls.
	Package:     "mariadb-server-core mariadb-client-core",
	script:      []string{"mariadb.sh"},
	accounts:    MySQL.accounts,
	stopSignal:  syscall.SIGTERM,
	deathSignal: syscall.SIGKILL, // it leaves nothing outside its directory
	engine:      mariadbServer{},
}

type mariadbServer struct{ mysqlClient }

func (mariadbServer) flushing() engine { return mariadbServer{mysqlClient{durable: true}} }

func (s mariadbServer) settings() []string {
	return s.mysqlClient.settings("--binlog-format=ROW") // the default is a mixture
}

// probe returns a version such as 10.11.14-MariaDB.
func (s mariadbServer) probe(ctx context.Context, dsn string) (string, error) {
	const name = "-MariaDB"
	version, err := s.version(ctx, dsn)
	if err != nil {
		return "", err
	}
	// Packagers add the number of their package.
	number, _, ok := strings.Cut(version, name)
	if !ok {
		return "", errors.New("MariaDB is wanted, this is MySQL " + version)
	}
	return number + name, nil
}

func (s mariadbServer) container() containerSpec {
	return containerSpec{
		port:   "3306/tcp",
		env:    map[string]string{"MARIADB_ALLOW_EMPTY_ROOT_PASSWORD": "yes", "MARIADB_ROOT_HOST": "%"},
		cmd:    append([]string{"mariadbd"}, s.settings()...),
		listen: s.listen,
		dsn:    s.rootDSN,
	}
}

func (mariadbServer) findPrograms() (string, error) {
	return findPrograms(func(dir string) bool {
		_, err := installDB(dir)
		return err == nil
	}, []string{"/usr/sbin"}, "mariadbd")
}

// installDB returns the program that makes a data directory, which lies beside
// the server or in the directory for everybody's programs, and whose helper
// may not be installed.
func installDB(dir string) (string, error) {
	for _, near := range []string{dir, filepath.Join(dir, "../bin")} {
		program, err := exec.LookPath(filepath.Join(near, "mariadb-install-db"))
		if err != nil {
			continue
		}
		_, err = exec.LookPath(filepath.Join(near, "my_print_defaults"))
		return program, err
	}
	return "", fmt.Errorf("no mariadb-install-db near %s", dir)
}

func (s mariadbServer) initialise(ctx context.Context, l *local) error {
	program, err := installDB(l.programs)
	if err != nil {
		return err
	}
	// One of the accounts it makes is root at 127.0.0.1. With "force" it does
	// not ask for the host's name, which may have no address.
	return l.run(ctx, program,
		"--no-defaults", "--datadir="+l.data(), "--auth-root-authentication-method=normal",
		"--skip-test-db", "--skip-name-resolve", "--force")
}

func (s mariadbServer) command(l *local) (string, []string) {
	return l.program("mariadbd"), append(s.serve(l), s.settings()...)
}
