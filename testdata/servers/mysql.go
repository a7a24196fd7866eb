package servers

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// MySQL is MySQL 8.4 or newer.
var MySQL = &Kind{
	Name:       "mysql",
	EnvVar:     "OUTBOX_TEST_MYSQL_DSN",
	ImageVar:   "OUTBOX_TEST_MYSQL_IMAGE",
	Image:      "mysql:8.4",
	LocalImage: "onward-test-mysql:latest",
	Package:    "mysql-server-core",
	script:     []string{"mysql.sh"},
	// A stable Debian has no such package, which the script makes up for.
	installer:   "testdata/servers/install.sh mysql",
	accounts:    []string{"mysql", "nobody"},
	stopSignal:  syscall.SIGTERM,
	deathSignal: syscall.SIGKILL, // it leaves nothing outside its directory
	engine:      mysqlServer{},
}

type mysqlServer struct{ mysqlClient }

func (mysqlServer) flushing() engine { return mysqlServer{mysqlClient{durable: true}} }

func (s mysqlServer) settings() []string {
	return s.mysqlClient.settings(
		"--mysqlx=OFF",
		// The directory that was compiled in need not exist.
		"--secure-file-priv=NULL",
	)
}

// probe returns a version such as 8.4.6.
func (s mysqlServer) probe(ctx context.Context, dsn string) (string, error) {
	version, err := s.version(ctx, dsn)
	if strings.Contains(version, "MariaDB") {
		return "", errors.New("MySQL is wanted, this is MariaDB " + version)
	}
	// Packagers add the number of their package.
	version, _, _ = strings.Cut(version, "-")
	return version, err
}

func (s mysqlServer) container() containerSpec {
	return containerSpec{
		port:   "3306/tcp",
		env:    map[string]string{"MYSQL_ALLOW_EMPTY_PASSWORD": "yes", "MYSQL_ROOT_HOST": "%"},
		cmd:    append([]string{"mysqld"}, s.settings()...),
		listen: s.listen,
		dsn:    s.rootDSN,
	}
}

func (mysqlServer) findPrograms() (string, error) {
	return findPrograms(func(dir string) bool {
		// MariaDB's server also goes by this name.
		version := programVersion(filepath.Join(dir, "mysqld"))
		return version != "" && !strings.Contains(version, "MariaDB")
	}, []string{"/usr/sbin", filepath.Join(cacheDir, "mysql/sbin")}, "mysqld")
}

func (s mysqlServer) initialise(ctx context.Context, l *local) error {
	// The account that comes with it is for the host localhost, which without
	// names is nobody.
	accounts := filepath.Join(l.dir.path, "accounts.sql")
	err := os.WriteFile(accounts, []byte("CREATE USER 'root'@'127.0.0.1';\n"+
		"GRANT ALL PRIVILEGES ON *.* TO 'root'@'127.0.0.1' WITH GRANT OPTION;\n"), 0o644)
	if err != nil {
		return err
	}
	args := slices.Concat(s.serve(l), s.settings(),
		[]string{"--initialize-insecure", "--init-file=" + accounts})
	return l.run(ctx, l.program("mysqld"), args...)
}

func (s mysqlServer) command(l *local) (string, []string) {
	return l.program("mysqld"), append(s.serve(l), s.settings()...)
}
