package servers

import (
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
)

func mysqlKinds(t *testing.T, f func(t *testing.T, kind *Kind)) {
	for _, kind := range []*Kind{MySQL, MariaDB} {
		t.Run(kind.Name, func(t *testing.T) { f(t, kind) })
	}
}

func TestMySQLSettings(t *testing.T) {
	mysqlKinds(t, func(t *testing.T, kind *Kind) {
		server := Get(t, kind)
		if server.Origin == FromEnvironment {
			t.Skip("the settings of a server from the environment are its owner's")
		}
		for name, want := range map[string]string{
			"max_connections": "300", "log_bin": "1", "binlog_format": "ROW", "binlog_row_image": "FULL",
			"sync_binlog": "0", "innodb_flush_log_at_trx_commit": "2",
		} {
			if got := query[string](t, server.DSN, "SELECT @@global."+name); got != want {
				t.Errorf("%s = %s, want %s", name, got, want)
			}
		}
	})
}

// TestMySQLRights does what tests need an administrator for.
func TestMySQLRights(t *testing.T) {
	mysqlKinds(t, func(t *testing.T, kind *Kind) {
		server := Get(t, kind)
		dsn := CreateDatabase(t, server)
		config, err := mysql.ParseDSN(dsn)
		if err != nil {
			t.Fatal(err)
		}
		if config.User != "root" || len(config.Params) != 0 || strings.Contains(dsn, "?") {
			t.Errorf("DSN %s", dsn)
		}
		execute(t, dsn,
			"SET GLOBAL lock_wait_timeout = @@global.lock_wait_timeout",
			"CREATE TABLE t (x int)",
			"CREATE USER 'outbox_test_reader'@'%' IDENTIFIED BY 'secret'",
			"GRANT SELECT ON t TO 'outbox_test_reader'@'%'")
		defer execute(t, dsn, "DROP USER 'outbox_test_reader'@'%'")

		config.User, config.Passwd = "outbox_test_reader", "secret"
		config.AllowNativePasswords = true
		config.TLSConfig = "preferred"
		reader := session(t, config.FormatDSN())
		if _, err := reader.ExecContext(t.Context(), "SELECT x FROM t"); err != nil {
			t.Error(err)
		}
		_, err = reader.ExecContext(t.Context(), "INSERT INTO t VALUES (1)")
		if denied := (*mysql.MySQLError)(nil); !errors.As(err, &denied) || denied.Number != 1142 {
			t.Errorf("an insert of a reader: %v", err)
		}
	})
}

// TestMySQLBinlog reads the name of a log and its first event.
func TestMySQLBinlog(t *testing.T) {
	mysqlKinds(t, func(t *testing.T, kind *Kind) {
		conn := session(t, Get(t, kind).DSN)
		rows, err := conn.QueryContext(t.Context(), "SHOW BINLOG EVENTS LIMIT 1")
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		if !rows.Next() {
			t.Error("no event", rows.Err())
		}
	})
}

// TestMySQLAndMariaDBAreNotConfused names one server to the other kind.
func TestMySQLAndMariaDBAreNotConfused(t *testing.T) {
	for kind, other := range map[*Kind]*Kind{MySQL: MariaDB, MariaDB: MySQL} {
		server := Get(t, other)
		version, err := kind.engine.probe(t.Context(), server.DSN)
		if err == nil || !strings.Contains(err.Error(), "is wanted") {
			t.Errorf("%s passes for %s %s: %v", server, kind.Name, version, err)
		}
	}
}

func TestMySQLWithDatabase(t *testing.T) {
	mysqlKinds(t, func(t *testing.T, kind *Kind) {
		// Who names a server keeps the parameters.
		dsn := Get(t, kind).DSN + "?parseTime=true"
		created, err := kind.engine.createDatabase(t.Context(), dsn, "outbox_test_parameters")
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := kind.engine.dropDatabase(t.Context(), dsn, "outbox_test_parameters"); err != nil {
				t.Error(err)
			}
		}()
		config, err := mysql.ParseDSN(created)
		if err != nil || config.DBName != "outbox_test_parameters" || !config.ParseTime {
			t.Errorf("got %s, %v", created, err)
		}
		if got := query[sql.NullString](t, created, "SELECT DATABASE()"); got.String != config.DBName {
			t.Errorf("in %q", got.String)
		}
	})
}
