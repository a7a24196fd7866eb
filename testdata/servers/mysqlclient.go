package servers

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"strconv"

	"github.com/go-sql-driver/mysql"
)

// mysqlClient is what MySQL and MariaDB have in common for those who connect.
type mysqlClient struct {
	durable bool
}

// errLockWait is the server's number for a lock that was not had in time.
const errLockWait = 1205

// errConvert is its number for a text that does not fit a column's charset.
const errConvert = 3854

func (mysqlClient) address(dsn string) (string, error) {
	config, err := mysql.ParseDSN(dsn)
	if err != nil {
		return "", err
	}
	return config.Addr, nil
}

// version returns what the server says of itself.
func (c mysqlClient) version(ctx context.Context, dsn string) (version string, err error) {
	err = c.connected(ctx, dsn, func(conn *sql.Conn) error {
		return conn.QueryRowContext(ctx, "SELECT VERSION()").Scan(&version)
	})
	return version, err
}

func (c mysqlClient) createDatabase(ctx context.Context, dsn, name string) (string, error) {
	config, err := mysql.ParseDSN(dsn)
	if err != nil {
		return "", err
	}
	err = c.connected(ctx, dsn, func(conn *sql.Conn) error {
		_, err := conn.ExecContext(ctx, "CREATE DATABASE `"+name+"`")
		return err
	})
	config.DBName = name
	return config.FormatDSN(), err
}

// dropDatabase ends the sessions in the database first, since an open
// transaction keeps its tables from being dropped.
func (c mysqlClient) dropDatabase(ctx context.Context, dsn, name string) error {
	return c.connected(ctx, dsn, func(conn *sql.Conn) error {
		if _, err := conn.ExecContext(ctx, "SET SESSION lock_wait_timeout = 1"); err != nil {
			return err
		}
		for {
			err := c.disconnect(ctx, conn, name)
			if failed := (*mysql.MySQLError)(nil); errors.As(err, &failed) && failed.Number == errConvert {
				// Somebody runs a statement just now whose text the list of
				// sessions cannot hold.
				if pause(ctx, probePause) != nil {
					return err
				}
				continue
			}
			if err != nil {
				return err
			}
			_, err = conn.ExecContext(ctx, "DROP DATABASE IF EXISTS `"+name+"`")
			// A client may have come back, and a long transaction takes its
			// time to be rolled back.
			if failed := (*mysql.MySQLError)(nil); !errors.As(err, &failed) || failed.Number != errLockWait {
				return err
			}
			if pause(ctx, probePause) != nil {
				return err
			}
		}
	})
}

// disconnect ends the sessions whose default database this is.
func (mysqlClient) disconnect(ctx context.Context, conn *sql.Conn, name string) error {
	rows, err := conn.QueryContext(ctx, "SELECT id FROM /*!80022 performance_schema.processlist */ /*M! information_schema.processlist */ WHERE db = ?", name)
	if err != nil {
		return err
	}
	defer rows.Close()
	var ids []uint64
	for rows.Next() {
		var id uint64
		if err := rows.Scan(&id); err != nil {
			return err
		}
		ids = append(ids, id)
	}
	if err := rows.Err(); err != nil {
		return err
	}
	for _, id := range ids {
		// It may have ended on its own.
		_, _ = conn.ExecContext(ctx, "KILL "+strconv.FormatUint(id, 10))
	}
	return ctx.Err()
}

// connected runs f on a connection of its own.
func (mysqlClient) connected(ctx context.Context, dsn string, f func(*sql.Conn) error) error {
	config, err := mysql.ParseDSN(dsn)
	if err != nil {
		return err
	}
	// What went wrong is in the errors. The statements have few parameters,
	// and preparing them would be one more round trip.
	config.Logger, config.InterpolateParams = &mysql.NopLogger{}, true
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return err
	}
	db := sql.OpenDB(connector)
	// The work is done; how the farewell goes does not matter.
	defer func() { _ = db.Close() }()
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	return f(conn)
}

// rootDSN is that of an administrator without a password.
func (mysqlClient) rootDSN(host string, port int) string {
	return fmt.Sprintf("root@tcp(%s)/", net.JoinHostPort(host, strconv.Itoa(port)))
}

func (c mysqlClient) localDSN(port int) string { return c.rootDSN("127.0.0.1", port) }

// settings are the arguments for both servers. Unless it is to be durable, a
// transaction is in the hands of the operating system when it has been committed,
// which a killed process survives; nothing waits for a disk.
func (c mysqlClient) settings(more ...string) []string {
	settings := []string{
		"--max-connections=300",
		"--skip-name-resolve",
		"--server-id=1",
		"--log-bin=binlog",
	}
	if c.durable { // as is the default, but for MariaDB's binary log
		settings = append(settings, "--sync-binlog=1", "--innodb-flush-log-at-trx-commit=1")
	} else {
		settings = append(settings, "--sync-binlog=0", "--innodb-flush-log-at-trx-commit=2",
			"--innodb-flush-method=nosync", "--innodb-doublewrite=OFF")
	}
	return append(settings, more...)
}

// serve are the arguments with which a local server serves its directory.
func (c mysqlClient) serve(l *local) []string {
	return append([]string{
		"--no-defaults", // must be the first
		"--datadir=" + l.data(),
		"--tmpdir=" + l.dir.path,
		// In the data directory, by a name that no directory makes too long.
		"--socket=server.sock",
		"--pid-file=server.pid",
	}, c.listen(l.port)...)
}

func (mysqlClient) listen(port int) []string {
	return []string{"--bind-address=127.0.0.1", "--port=" + strconv.Itoa(port)}
}
