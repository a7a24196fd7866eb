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

// checkURL refuses a URL of which a part of the password may be taken for something
// else, such as the host, which is told: a password ends at the first @, / or ? for
// one parser, and at another one for the next.
func checkURL(dsn string) error {
	_, rest, isURL := strings.Cut(dsn, "://")
	if !isURL {
		return nil
	}
	authority := rest
	if end := strings.IndexAny(rest, "/?#"); end >= 0 {
		authority = rest[:end]
	}
	if strings.Count(authority, "@") <= 1 && !strings.ContainsAny(rest[len(authority):], "@#") {
		return nil
	}
	return fmt.Errorf("%w: a URL has one @, before the host: percent-encode @ as %%40, : as %%3A, / as %%2F, ? as %%3F, # as %%23 and %% as %%25 in user, password and parameters", ErrDSN)
}
