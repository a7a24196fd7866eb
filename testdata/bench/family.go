package main

import (
	"context"
	"database/sql"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"gorm.io/driver/mysql"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"

	"github.com/onward-go/outbox/sqltx"
	"github.com/onward-go/outbox/testdata/servers"
)

// family is a kind of database that can be measured.
type family struct {
	dialector func(dsn string) gorm.Dialector
	// database names a database where the server's DSN does not.
	database func(ctx context.Context, dsn string) (string, error)
	// tables are the tables by hand: counters that producers and the limit
	// change, and those that the handlers of contenders do. The bare one is
	// partitioned like the outbox, so that the bare insert pays for that, too.
	tables     []string
	bareInsert string // id, account, aggregate type, aggregate id, event type, payload
	marker     string // event id
	markAll    string // event ids as JSON
	update     string // id
	effect     string // id; what a handler does
	updateAll  string // ids and numbers as JSON
	later      string // a stamp that is so many microseconds later
	// sqlDriver and dialect are what database/sql and sqltx call the kind.
	sqlDriver string
	dialect   sqltx.Dialect
	// driver opens the driver alone, with so many connections.
	driver func(ctx context.Context, dsn string, connections int) (hand, error)
}

// statement is an SQL statement and its arguments.
type statement struct {
	query string
	args  []any
}

// hand runs statements in a transaction, with nothing but the driver.
type hand struct {
	transaction func(ctx context.Context, statements ...statement) error
	// chain runs as many transactions one after the other, where the driver has a
	// pipeline: each commits in the round trip of the next one's first statement.
	chain func(ctx context.Context, transactions [][]statement) error
	close func()
}

var (
	pgFamily = family{
		dialector: postgres.Open,
		database:  func(_ context.Context, dsn string) (string, error) { return dsn, nil },
		tables: []string{
			"CREATE TABLE {prefix}counter (id int PRIMARY KEY, n bigint NOT NULL)",
			"CREATE TABLE {prefix}effect (id int PRIMARY KEY, n bigint NOT NULL)",
			"CREATE TABLE {prefix}marker (created_time timestamptz, event_id text, handler text, PRIMARY KEY (created_time, event_id, handler))",
			"CREATE TABLE {prefix}bare (LIKE {prefix}outbox INCLUDING CONSTRAINTS INCLUDING INDEXES) PARTITION BY RANGE (created_time)",
			"ALTER TABLE {prefix}bare ALTER created_time SET DEFAULT clock_timestamp()",
			"CREATE TABLE {prefix}bare_pmax PARTITION OF {prefix}bare DEFAULT",
		},
		bareInsert: "INSERT INTO {prefix}bare (id, account_id, aggregate_type, aggregate_id, event_type, payload) VALUES ($1, $2, $3, $4, $5, $6)",
		marker:     "INSERT INTO {prefix}marker VALUES (clock_timestamp(), $1, 'count') ON CONFLICT DO NOTHING",
		markAll:    "INSERT INTO {prefix}marker SELECT clock_timestamp(), k.id, 'count' FROM json_array_elements_text($1::json) AS k(id) ON CONFLICT DO NOTHING",
		update:     "UPDATE {prefix}counter SET n = n + 1 WHERE id = $1",
		effect:     "UPDATE {prefix}effect SET n = n + 1 WHERE id = $1",
		later:      "created_time + %d * interval '1 microsecond'",
		sqlDriver:  "pgx",
		dialect:    sqltx.Postgres,
		updateAll:  "UPDATE {prefix}effect AS c SET n = c.n + k.n FROM json_to_recordset($1::json) AS k(id int, n bigint) WHERE c.id = k.id",
		driver:     pgxByHand,
	}
	mysqlFamily = family{
		dialector: mysql.Open,
		database: func(ctx context.Context, dsn string) (string, error) {
			return servers.MySQLDatabase(ctx, dsn, "outbox_bench")
		},
		tables: []string{
			"CREATE TABLE {prefix}counter (id INT PRIMARY KEY, n BIGINT NOT NULL) ENGINE=InnoDB",
			"CREATE TABLE {prefix}effect (id INT PRIMARY KEY, n BIGINT NOT NULL) ENGINE=InnoDB",
			"CREATE TABLE {prefix}marker LIKE {prefix}outbox_idempotency",
			"CREATE TABLE {prefix}bare LIKE {prefix}outbox",
		},
		bareInsert: "INSERT INTO {prefix}bare (id, account_id, aggregate_type, aggregate_id, event_type, payload, created_time) VALUES (?, ?, ?, ?, ?, ?, UTC_TIMESTAMP(6))",
		marker:     "INSERT INTO {prefix}marker (created_time, event_id, handler) VALUES (UTC_TIMESTAMP(6), ?, 'count')",
		markAll:    "INSERT INTO {prefix}marker (created_time, event_id, handler) SELECT UTC_TIMESTAMP(6), k.id, 'count' FROM JSON_TABLE(?, '$[*]' COLUMNS (id VARCHAR(64) PATH '$')) AS k",
		update:     "UPDATE {prefix}counter SET n = n + 1 WHERE id = ?",
		effect:     "UPDATE {prefix}effect SET n = n + 1 WHERE id = ?",
		later:      "created_time + INTERVAL %d MICROSECOND",
		sqlDriver:  "mysql",
		dialect:    sqltx.MySQL,
		updateAll:  "UPDATE JSON_TABLE(?, '$[*]' COLUMNS (id INT PATH '$.id', n BIGINT PATH '$.n')) AS k JOIN {prefix}effect AS c ON c.id = k.id SET c.n = c.n + k.n",
		driver:     sqlByHand,
	}
	families = map[string]family{"postgres": pgFamily, "mysql": mysqlFamily, "mariadb": mysqlFamily}
)

func pgxByHand(ctx context.Context, dsn string, connections int) (hand, error) {
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return hand{}, err
	}
	config.MaxConns = int32(connections)
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return hand{}, err
	}
	return hand{func(ctx context.Context, statements ...statement) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return execute(ctx, tx, statements...) })
	}, func(ctx context.Context, transactions [][]statement) error {
		return pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error { return chain(ctx, conn.Conn(), transactions) })
	}, pool.Close}, nil
}

func chain(ctx context.Context, conn *pgx.Conn, transactions [][]statement) error {
	for i, statements := range transactions {
		var flight pgx.Batch
		if i > 0 {
			flight.Queue("commit")
		}
		flight.Queue("begin")
		flight.Queue(statements[0].query, statements[0].args...)
		if err := conn.SendBatch(ctx, &flight).Close(); err != nil {
			return err
		}
		for _, s := range statements[1:] {
			if _, err := conn.Exec(ctx, s.query, s.args...); err != nil {
				return err
			}
		}
	}
	_, err := conn.Exec(ctx, "commit")
	return err
}

func execute(ctx context.Context, tx pgx.Tx, statements ...statement) error {
	for _, s := range statements {
		if _, err := tx.Exec(ctx, s.query, s.args...); err != nil {
			return err
		}
	}
	return nil
}

func sqlByHand(_ context.Context, dsn string, connections int) (hand, error) {
	pool, err := sql.Open("mysql", dsn)
	if err != nil {
		return hand{}, err
	}
	pool.SetMaxIdleConns(connections)
	return hand{func(ctx context.Context, statements ...statement) error {
		return transaction(ctx, pool, statements...)
	}, nil, func() { _ = pool.Close() }}, nil // the process ends
}

// transaction runs statements in a transaction of database/sql.
func transaction(ctx context.Context, pool *sql.DB, statements ...statement) error {
	tx, err := pool.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // does nothing after the commit
	for _, s := range statements {
		if _, err := tx.ExecContext(ctx, s.query, s.args...); err != nil {
			return err
		}
	}
	return tx.Commit()
}
