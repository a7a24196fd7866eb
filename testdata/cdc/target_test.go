package cdc

import (
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
	"gorm.io/driver/mysql"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/onward-go/outbox/gormtx"
	"github.com/onward-go/outbox/testdata/servers"
)

// TestMain lets the tests share servers among themselves, but with nobody else:
// the making of a slot waits for everybody's transactions, and a binlog holds
// everybody's changes.
func TestMain(m *testing.M) {
	for _, kind := range servers.Kinds() {
		if err := os.Unsetenv(kind.EnvVar); err != nil {
			panic(err)
		}
	}
	servers.Main(m)
}

// target is a kind of database and the engines that read its log.
type target struct {
	kind      *servers.Kind
	dialector func(dsn string) gorm.Dialector
	engines   func(t *testing.T, dsn string) map[string]Engine
	// past makes a partition for the time before February 2020 of the one
	// that has no lower bound.
	past []string
	// control is what somebody does to the outbox by hand, and what each
	// engine has to report.
	control  []string
	reported map[string][]Change
	// retention is every statement that may touch the outbox after its
	// migration.
	retention *regexp.Regexp
}

var targets = []target{postgresTarget(servers.Postgres), postgresTarget(servers.Postgres15), mysqlTarget(servers.MySQL), mysqlTarget(servers.MariaDB)}

func postgresTarget(kind *servers.Kind) target {
	return target{
		kind:      kind,
		dialector: postgres.Open,
		engines: func(t *testing.T, dsn string) map[string]Engine {
			asOne, err := NewPostgres(t.Context(), dsn, "as_one", OutboxAsOneTable)
			require.NoError(t, err)
			every, err := NewPostgres(t.Context(), dsn, "every", EveryTable)
			require.NoError(t, err)
			return map[string]Engine{"as one table": asOne, "every table": every}
		},
		past: []string{`
			DO $$
			DECLARE first text := 'outbox_p' || to_char(now() AT TIME ZONE 'UTC', 'YYYY_MM');
			BEGIN
			  EXECUTE format('ALTER TABLE outbox DETACH PARTITION %I', first);
			  CREATE TABLE outbox_p2020_01 PARTITION OF outbox FOR VALUES FROM (MINVALUE) TO ('2020-02-01 00:00:00+00');
			  EXECUTE format('ALTER TABLE outbox ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', first, '2020-02-01 00:00:00+00',
			    to_char(date_trunc('month', now() AT TIME ZONE 'UTC') + interval '1 month', 'YYYY-MM-DD HH24:MI:SS"+00"'));
			END $$`},
		control: []string{
			"UPDATE outbox SET payload = 'x' WHERE id = 'old-0001'",
			"DELETE FROM outbox WHERE id = 'old-0002'",
			"UPDATE outbox SET created_time = '2020-02-02' WHERE id = 'old-0003'", // moves to another partition
			"TRUNCATE outbox_p2020_01",
			"CREATE INDEX by_type ON outbox (event_type)",
			"GRANT UPDATE ON outbox TO PUBLIC",
			"ALTER TABLE outbox DETACH PARTITION outbox_pmax",
			"INSERT INTO outbox_pmax (id, aggregate_type, aggregate_id, event_type, created_time) VALUES ('x', 'x', 'x', 'x', '2120-01-01')",
			"DELETE FROM outbox_pmax",
			"TRUNCATE outbox",
		},
		reported: map[string][]Change{
			"as one table": {
				{Update, "outbox"},
				{Delete, "outbox"},
				{Delete, "outbox"},
				{Statement, "CREATE INDEX by_type ON outbox (event_type)"},
				{Statement, "GRANT UPDATE ON outbox TO PUBLIC"},
				{Statement, "ALTER TABLE outbox DETACH PARTITION outbox_pmax"},
				{Truncate, "outbox"},
			},
			"every table": {
				{Update, "outbox_p2020_01"},
				{Delete, "outbox_p2020_01"},
				{Delete, "outbox_p2020_01"},
				{Truncate, "outbox_p2020_01"},
				{Statement, "CREATE INDEX by_type ON outbox (event_type)"},
				{Statement, "GRANT UPDATE ON outbox TO PUBLIC"},
				{Statement, "ALTER TABLE outbox DETACH PARTITION outbox_pmax"},
				{Delete, "outbox_pmax"},
				{Truncate, "the months from the migration"},
				{Truncate, "outbox_p2020_01"},
			},
		},
		retention: regexp.MustCompile(`(?is)^\s*(ALTER TABLE \S+ (ATTACH|DETACH) PARTITION |CREATE TABLE \S*outbox_p\w+|COMMENT ON TABLE \S*outbox_p\w+ IS |DROP TABLE IF EXISTS \S*outbox_p\w+)`),
	}
}

func mysqlTarget(kind *servers.Kind) target {
	return target{
		kind:      kind,
		dialector: mysql.Open,
		engines: func(t *testing.T, dsn string) map[string]Engine {
			engine, err := NewMySQL(t.Context(), dsn)
			require.NoError(t, err)
			return map[string]Engine{"binlog": engine}
		},
		past: []string{
			`SET @ddl = CONCAT('ALTER TABLE outbox REORGANIZE PARTITION p', DATE_FORMAT(UTC_DATE(), '%Y_%m'), ' INTO (',
				'PARTITION p2020_01 VALUES LESS THAN (', TO_DAYS('2020-02-01'), '),',
				'PARTITION p', DATE_FORMAT(UTC_DATE(), '%Y_%m'), ' VALUES LESS THAN (', TO_DAYS(DATE_FORMAT(UTC_DATE() + INTERVAL 1 MONTH, '%Y-%m-01')), '))')`,
			"PREPARE ddl FROM @ddl",
			"EXECUTE ddl",
		},
		control: []string{
			"UPDATE outbox SET payload = 'x' WHERE id = 'old-0001'",
			"DELETE FROM outbox WHERE id = 'old-0002'",
			"UPDATE outbox SET created_time = '2020-02-02' WHERE id = 'old-0003'",
			"SET SESSION binlog_format = 'STATEMENT'",
			"DELETE FROM outbox WHERE id = 'old-0004'",
			"SET SESSION binlog_format = 'ROW'",
			"CREATE INDEX by_type ON outbox (event_type)",
			"ALTER TABLE outbox TRUNCATE PARTITION p2020_01",
			"TRUNCATE TABLE outbox",
		},
		reported: map[string][]Change{"binlog": {
			{Update, "outbox"},
			{Delete, "outbox"},
			{Update, "outbox"},
			{Statement, "DELETE FROM outbox WHERE id = 'old-0004'"},
			{Statement, "CREATE INDEX by_type ON outbox (event_type)"},
			{Statement, "ALTER TABLE outbox TRUNCATE PARTITION p2020_01"},
			{Statement, "TRUNCATE TABLE outbox"},
		}},
		retention: regexp.MustCompile(`(?is)^\s*ALTER TABLE \S+ (DROP|ADD|REORGANIZE) PARTITION `),
	}
}

// database is a new outbox, with engines that have just been made.
type database struct {
	*gorm.DB
	outbox  *gormtx.Outbox
	engines map[string]Engine
}

func (target target) start(t *testing.T) database {
	dsn := servers.CreateDatabase(t, servers.Get(t, target.kind))
	db, err := gorm.Open(target.dialector(dsn), &gorm.Config{Logger: logger.Discard})
	require.NoError(t, err)
	pool, err := db.DB()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pool.Close()) })
	outbox := gormtx.New(db)
	require.NoError(t, outbox.Migrate(t.Context()))
	require.NoError(t, db.Connection(func(session *gorm.DB) error {
		for _, statement := range target.past {
			require.NoError(t, session.Exec(statement).Error)
		}
		return nil
	}))
	require.NoError(t, db.Exec("CREATE TABLE accounts (id VARCHAR(64) NOT NULL PRIMARY KEY, changes INT NOT NULL)").Error)
	return database{DB: db, outbox: outbox, engines: target.engines(t, dsn)}
}

// onEach runs a test on every kind of database.
func onEach(t *testing.T, test func(t *testing.T, target target, db database)) {
	for _, target := range targets {
		t.Run(target.kind.Name, func(t *testing.T) { test(t, target, target.start(t)) })
	}
}
