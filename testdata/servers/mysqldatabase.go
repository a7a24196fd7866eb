package servers

import (
	"context"
	"database/sql"

	"github.com/go-sql-driver/mysql"
)

// MySQLDatabase returns the DSN of a database on a server of MySQL's family:
// the one that the DSN names, or else one of the given name, which it makes if
// it is not there. For programs; a test has a database of its own from
// [CreateDatabase].
func MySQLDatabase(ctx context.Context, dsn, name string) (string, error) {
	config, err := mysql.ParseDSN(dsn)
	if err != nil || config.DBName != "" {
		return dsn, err
	}
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		return "", err
	}
	defer db.Close()
	config.DBName = name
	_, err = db.ExecContext(ctx, "CREATE DATABASE IF NOT EXISTS "+name)
	return config.FormatDSN(), err
}
