package database

import (
	"database/sql"
	"fmt"
	"os"
	"strings"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite" // the driver "sqlite", which needs no cgo

	"github.com/onward-go/outbox/sqltx"
)

// connections is how many the pool has at most: an operator looks at one thing
// at a time.
const connections = 2

// Open returns a pool for the DSN, and what in the DSN, and in what was read
// beside it (PGPASSWORD, a password file), is secret. It connects to nothing.
// Create says that a SQLite file that does not exist is to be made. Errors are
// [ErrDSN]; the secrets known so far come with them.
func Open(dsn string, dialect sqltx.Dialect, create bool) (db *sql.DB, secrets []string, err error) {
	secrets = SecretsIn(dsn)
	if err := checkURL(dsn); err != nil && dialect != sqltx.SQLite {
		return nil, secrets, err
	}
	switch dialect {
	case sqltx.Postgres:
		var password []string
		db, password, err = openPostgres(dsn)
		secrets = append(secrets, password...)
	case sqltx.MySQL:
		var password string
		db, password, err = openMySQL(dsn)
		secrets = append(secrets, password)
	default:
		db, err = openSQLite(dsn, create)
	}
	if err != nil {
		return nil, secrets, err
	}
	db.SetMaxOpenConns(connections)
	return db, secrets, nil
}

func openPostgres(dsn string) (*sql.DB, []string, error) {
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: PostgreSQL takes postgres://user:password@host:5432/db?sslmode=verify-full, with special characters of the password percent-encoded, or host=HOST dbname=DB", ErrDSN)
	}
	secrets := []string{config.Password}
	if config.RuntimeParams["application_name"] == "" {
		config.RuntimeParams["application_name"] = "outboxctl"
	}
	// Prepares nothing, so that it works behind a transaction pooler.
	if !strings.Contains(dsn, "default_query_exec_mode") {
		config.DefaultQueryExecMode = pgx.QueryExecModeExec
	}
	return stdlib.OpenDB(*config), secrets, nil
}

func openMySQL(dsn string) (*sql.DB, string, error) {
	config, err := mysqlConfig(dsn)
	if err != nil {
		return nil, "", fmt.Errorf("%w: MySQL and MariaDB take mysql://user:password@host:3306/db?tls=true, with special characters of the password percent-encoded, or user:password@tcp(host:3306)/db", ErrDSN)
	}
	config.Logger = &mysql.NopLogger{} // what it would say comes as an error, too
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return nil, config.Passwd, fmt.Errorf("%w: the parameters are not those of go-sql-driver/mysql", ErrDSN)
	}
	return sql.OpenDB(connector), config.Passwd, nil
}

// openSQLite refuses a file that does not exist, which would be an empty
// database.
func openSQLite(dsn string, create bool) (*sql.DB, error) {
	name, params, _ := strings.Cut(sqlitePath(dsn), "?")
	if name == "" {
		return nil, fmt.Errorf("%w: SQLite takes sqlite:path/to/file.db", ErrDSN)
	}
	if _, err := os.Stat(name); err != nil && !create {
		return nil, fmt.Errorf("%w: there is no database file %s: `outboxctl migrate up` makes it", ErrDSN, name)
	}
	if !strings.Contains(params, "busy_timeout") {
		params = strings.TrimPrefix(params+"&_pragma=busy_timeout(10000)", "&")
	}
	db, err := sql.Open("sqlite", "file:"+name+"?"+params)
	if err != nil {
		return nil, fmt.Errorf("%w: SQLite takes sqlite:path/to/file.db?_pragma=name(value)", ErrDSN)
	}
	return db, nil
}

func sqlitePath(dsn string) string {
	for _, scheme := range []string{"sqlite3:", "sqlite:", "file:"} {
		if rest, found := strings.CutPrefix(dsn, scheme); found {
			return strings.TrimPrefix(rest, "//")
		}
	}
	return dsn
}
