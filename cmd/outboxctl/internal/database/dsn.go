package database

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/onward-go/outbox/sqltx"
)

// ErrDSN says that a DSN cannot be used. It never quotes the DSN, nor what a
// parser says of it, since either may hold a password.
var ErrDSN = errors.New("bad DSN")

// schemes are the beginnings that tell a kind of database.
var schemes = map[string]sqltx.Dialect{
	"postgres": sqltx.Postgres, "postgresql": sqltx.Postgres,
	"mysql": sqltx.MySQL, "mariadb": sqltx.MySQL,
	"sqlite": sqltx.SQLite, "sqlite3": sqltx.SQLite, "file": sqltx.SQLite,
}

var (
	// keyword begins a connection string of libpq: host=... dbname=...
	keyword = regexp.MustCompile(`^\s*[a-z_]+\s*=`)
	// network is the address in a DSN of go-sql-driver/mysql.
	network = regexp.MustCompile(`(^|@)[a-z0-9]*\([^)]*\)/|^[^/:]*(:[^@]*)?@/`)
)

// DialectOf returns the kind of database that a DSN connects to, by its scheme
// or its form. Name decides if it is not empty: a dialect, or mariadb.
func DialectOf(dsn, name string) (sqltx.Dialect, error) {
	if name != "" {
		dialect, ok := schemes[name]
		if !ok || name == "file" {
			return "", fmt.Errorf("%w: there is no dialect %q: postgres, mysql, mariadb or sqlite", ErrDSN, name)
		}
		return dialect, nil
	}
	scheme, _, found := strings.Cut(dsn, ":")
	if dialect, ok := schemes[scheme]; found && ok {
		return dialect, nil
	}
	switch {
	case keyword.MatchString(dsn):
		return sqltx.Postgres, nil
	case network.MatchString(dsn):
		return sqltx.MySQL, nil
	}
	return "", fmt.Errorf("%w: it does not tell the kind of database: write postgres://user:password@host/db, mysql://user:password@host/db or sqlite:path, or name the --dialect", ErrDSN)
}
