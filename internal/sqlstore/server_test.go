package sqlstore

import (
	"maps"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/persistence"
)

// What servers say of their version. An empty want is a refusal, whose message
// contains says.
func TestServersAreToldByTheirVersion(t *testing.T) {
	for _, c := range []struct {
		dialect *Dialect
		version string
		comment string
		want    string
		says    string
	}{
		{Postgres, "PostgreSQL 18.1 (Debian 18.1-1) on x86_64-pc-linux-gnu, compiled by gcc 15.2.0, 64-bit", "", "PostgreSQL 18.1", ""},
		{Postgres, "PostgreSQL 15.0 on aarch64-unknown-linux-gnu, compiled by gcc", "", "PostgreSQL 15", ""},
		{Postgres, "PostgreSQL 19devel on x86_64-pc-linux-gnu", "", "PostgreSQL 19", ""},
		{Postgres, "PostgreSQL 18beta1 on x86_64-pc-linux-gnu", "", "PostgreSQL 18", ""},
		{Postgres, "PostgreSQL 14.13 on x86_64-pc-linux-gnu", "", "", "PostgreSQL 14.13"},
		{Postgres, "PostgreSQL 9.6.24 on x86_64-pc-linux-gnu", "", "", "PostgreSQL 9.6.24"},
		{Postgres, "CockroachDB CCL v23.1.11 (x86_64-pc-linux-gnu, built 2023/09/27)", "", "", "CockroachDB"},
		{Postgres, "PostgreSQL 15.2-YB-2.25.0.0-b489 on x86_64-pc-linux-gnu", "", "", "YugabyteDB"},
		{Postgres, "PostgreSQL 8.0.2 on i686-pc-linux-gnu, compiled by GCC gcc (GCC) 3.4.2, Redshift 1.0.77467", "", "", "Redshift"},
		{Postgres, "PostgreSQL 15.14.0-RisingWave-2.5.0 (abc)", "", "", "RisingWave"},
		{Postgres, "PostgreSQL", "", "", "the server says it is"},
		{Postgres, "", "", "", "the server says it is"},

		{MySQL, "8.0.16", "MySQL Community Server - GPL", "MySQL 8.0.16", ""},
		{MySQL, "8.0.36-0ubuntu0.22.04.1", "(Ubuntu)", "MySQL 8.0.36", ""},
		{MySQL, "8.4.3-3", "Percona Server (GPL), Release 3, Revision c754ce6d", "MySQL 8.4.3", ""},
		{MySQL, "8.0.28", "Source distribution", "MySQL 8.0.28", ""},
		{MySQL, "10.0.0", "MySQL Community Server - GPL", "MySQL 10", ""},
		{MySQL, "8.0.15", "MySQL Community Server - GPL", "", "MySQL 8.0.15, which lacks SKIP LOCKED, JSON_TABLE or CHECK constraints: use MySQL 8.0.16 or newer"},
		{MySQL, "5.7.44-log", "MySQL Community Server (GPL)", "", "MySQL 5.7.44"},
		{MySQL, "", "", "", "MySQL 0"},
		{MySQL, "10.11.18-MariaDB-0+deb12u1-log", "Debian 12", "MariaDB 10.11.18", ""},
		{MySQL, "5.5.5-10.6.0-MariaDB", "mariadb.org binary distribution", "MariaDB 10.6", ""},
		{MySQL, "11.4.2", "MariaDB Server", "MariaDB 11.4.2", ""},
		{MySQL, "10.5.27-MariaDB", "", "", "MariaDB 10.5.27, which lacks SKIP LOCKED or JSON_TABLE: use MariaDB 10.6 or newer"},
		{MySQL, "5.5.5-10.4.12-MariaDB", "", "", "MariaDB 10.4.12"},
		{MySQL, "8.0.11-TiDB-v8.5.0", "TiDB Server (Apache License 2.0) Community Edition, MySQL 8.0 compatible", "", "TiDB"},
		{MySQL, "8.0.40", "TiDB Server (Apache License 2.0) Community Edition, MySQL 8.0 compatible", "", "TiDB"},
		{MySQL, "8.0.30-Vitess", "Version: 21.0.0", "", "Vitess"},
		{MySQL, "8.0.34-PlanetScale", "", "", "PlanetScale"},
		{MySQL, "5.7.25-OceanBase-v4.2.1.0", "", "", "OceanBase"},
		{MySQL, "8.0.33", "Dolt", "", "Dolt"},

		{SQLite, "3.42.0", "", "SQLite 3.42", ""},
		{SQLite, "3.51.1", "", "SQLite 3.51.1", ""},
		{SQLite, "4.0.0", "", "SQLite 4", ""},
		{SQLite, "3.41.2", "", "", "SQLite 3.41.2"},
		{SQLite, "3.7.17", "", "", "SQLite 3.7.17"},
	} {
		got, err := c.dialect.judge(facts{"version": c.version, "version_comment": c.comment, "sql_select_limit": unlimited})
		if c.want == "" {
			require.ErrorIs(t, err, persistence.ErrUnsupported, c.version)
			require.ErrorContains(t, err, c.says)
			continue
		}
		require.NoError(t, err, c.version)
		require.Equal(t, c.want, got.String())
	}
}

// How servers are set up, beside the defaults.
func TestServersAreToldByTheirVariables(t *testing.T) {
	mysql := facts{"version": "8.4.6", "version_comment": "MySQL Community Server - GPL", "autocommit": "ON", "log_bin": "ON", "binlog_format": "ROW", "sql_select_limit": unlimited}
	mariadb := facts{
		"version": "10.11.18-MariaDB", "autocommit": "ON", "log_bin": "ON", "binlog_format": "MIXED",
		"wsrep_on": "OFF", "wsrep_provider": "none", "sql_select_limit": unlimited,
	}
	postgres := facts{"version": "PostgreSQL 17.4 on x86_64", "advisory locks": "2"}
	const galera = "/usr/lib/galera/libgalera_smm.so"
	for _, c := range []struct {
		dialect *Dialect
		server  facts
		but     facts
		says    string // "" if it will do
	}{
		{MySQL, mysql, nil, ""},
		{MySQL, mariadb, nil, ""},
		{Postgres, postgres, nil, ""},
		{Postgres, postgres, facts{"advisory locks": "0"}, "no advisory locks"},

		{MySQL, mysql, facts{"binlog_format": "STATEMENT"}, "set it to ROW or MIXED"},
		{MySQL, mysql, facts{"binlog_format": "STATEMENT", "log_bin": "OFF"}, ""},
		{MySQL, mysql, facts{"binlog_format": "MIXED"}, ""},
		{MySQL, mariadb, facts{"binlog_format": "statement", "log_bin": "1"}, "set it to ROW or MIXED"},

		{MySQL, mysql, facts{"transaction_isolation": "READ-UNCOMMITTED"}, "READ UNCOMMITTED"},
		{MySQL, mariadb, facts{"tx_isolation": "READ-UNCOMMITTED"}, "READ UNCOMMITTED"},
		{MySQL, mariadb, facts{"tx_isolation": "REPEATABLE-READ"}, ""},

		{MySQL, mysql, facts{"autocommit": "OFF"}, "autocommit is off"},
		{MySQL, mysql, facts{"autocommit": "0"}, "autocommit is off"},

		{MySQL, mysql, facts{"character_set_client": "latin1"}, "charset=utf8mb4"},
		{MySQL, mysql, facts{"character_set_client": "utf8mb4", "character_set_connection": "utf8mb3"}, "charset=utf8mb4"},
		{MySQL, mysql, facts{"character_set_results": "latin1"}, "charset=utf8mb4"},
		{MySQL, mysql, facts{"character_set_client": "binary"}, "charset=utf8mb4"},
		{MySQL, mysql, facts{"character_set_client": "utf8mb4", "character_set_connection": "utf8mb4", "character_set_results": "binary"}, ""},

		{MySQL, mariadb, facts{"wsrep_on": "ON", "wsrep_provider": galera}, "Galera"},
		{MySQL, mysql, facts{"wsrep_on": "ON", "wsrep_provider": galera}, "Galera"}, // Percona XtraDB Cluster
		{MySQL, mariadb, facts{"wsrep_on": "ON"}, ""},
		{MySQL, mariadb, facts{"wsrep_on": "ON", "wsrep_provider": ""}, ""},
		{MySQL, mariadb, facts{"wsrep_provider": galera}, ""},

		{MySQL, mysql, facts{"group_replication_group_name": "g", "group_replication_single_primary_mode": "OFF"}, "group_replication_single_primary_mode"},
		{MySQL, mysql, facts{"group_replication_group_name": "g", "group_replication_single_primary_mode": "ON"}, ""},
		{MySQL, mysql, facts{"group_replication_group_name": "", "group_replication_single_primary_mode": "OFF"}, ""},

		{MySQL, mysql, facts{"sql_select_limit": "100000"}, "sql_select_limit"},
		{MySQL, mysql, facts{"sql_big_selects": "OFF", "max_join_size": unlimited}, ""},
		{MySQL, mysql, facts{"sql_big_selects": "OFF", "max_join_size": "1000"}, "max_join_size is 1000"},
		{MySQL, mysql, facts{"sql_log_bin": "OFF", "log_bin": "OFF"}, ""},
		{MySQL, mysql, facts{"sql_log_bin": "OFF"}, "kept from replicas"},
		{MySQL, mariadb, facts{"sql_mode": "PIPES_AS_CONCAT,ORACLE,NO_KEY_OPTIONS"}, "sql_mode has ORACLE"},
		{Postgres, postgres, facts{"client_encoding": "UTF8"}, ""},
		{Postgres, postgres, facts{"client_encoding": "LATIN1"}, "client_encoding is LATIN1"},
		{Postgres, postgres, facts{"client_encoding": "SQL_ASCII"}, ""},
		{SQLite, facts{"version": "3.51.1"}, facts{"read_uncommitted": "1"}, "read_uncommitted is on"},

		{MySQL, mysql, facts{"tidb_current_ts": "0"}, "TiDB"},
		{MySQL, mysql, facts{"memsql_version": "8.7"}, "SingleStore"},
	} {
		server := maps.Clone(c.server)
		maps.Copy(server, c.but)
		_, err := c.dialect.judge(server)
		if c.says == "" {
			require.NoError(t, err, server)
			continue
		}
		require.ErrorIs(t, err, persistence.ErrUnsupported, server)
		require.ErrorContains(t, err, c.says)
	}
}
