package facetest

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"github.com/onward-go/outbox/persistence"
)

// dialect is what the suite needs to know of a database.
type dialect struct {
	tables         []string
	upsert         string
	endTransaction func(ctx context.Context, f Face) error
	failCommit     func(ctx context.Context, f Face) error
	time           func(persistence.Record) any
	table          func(naming Naming, name string) string
	oneWriter      bool
	// partition cuts the first partition of a table; nil where there are none.
	partition func(ctx context.Context, db *sql.DB, naming Naming, table string, ends []time.Time) error
	// savepointsBlock may be nil.
	savepointsBlock func(db *sql.DB) bool
	// snapshots may be nil.
	snapshots func(db *sql.DB) bool
}

var dialects = map[string]dialect{
	"postgres": {
		tables: []string{
			"CREATE TABLE outboxtest_state (k text PRIMARY KEY, v text NOT NULL)",
			"CREATE TABLE outboxtest_child (k text REFERENCES outboxtest_state DEFERRABLE INITIALLY DEFERRED)",
		},
		upsert:         "INSERT INTO outboxtest_state (k, v) VALUES (?, ?) ON CONFLICT (k) DO UPDATE SET v = excluded.v",
		endTransaction: statement("SELECT pg_terminate_backend(pg_backend_pid())"),
		failCommit:     statement("INSERT INTO outboxtest_child (k) VALUES ('missing')"),
		time:           func(r persistence.Record) any { return r.CreatedTime },
		table:          Naming.Quoted,
		partition:      cutPostgres,
	},
	"sqlite": {
		tables: []string{
			"CREATE TABLE outboxtest_state (k TEXT PRIMARY KEY NOT NULL, v TEXT NOT NULL)",
			"CREATE TABLE outboxtest_child (k TEXT REFERENCES outboxtest_state DEFERRABLE INITIALLY DEFERRED)",
		},
		upsert:         "INSERT INTO outboxtest_state (k, v) VALUES (?, ?) ON CONFLICT (k) DO UPDATE SET v = excluded.v",
		endTransaction: statement("INSERT OR ROLLBACK INTO outboxtest_state (k, v) VALUES (NULL, NULL)"),
		failCommit:     statement("INSERT INTO outboxtest_child (k) VALUES ('missing')"),
		time:           func(r persistence.Record) any { return r.CreatedTime.UnixMicro() },
		table:          Naming.Quoted,
		oneWriter:      true,
	},
	"mysql": {
		tables: []string{
			"CREATE TABLE outboxtest_state (k VARBINARY(255) PRIMARY KEY, v VARBINARY(255) NOT NULL) ENGINE=InnoDB",
			"CREATE TABLE outboxtest_lock (k INT PRIMARY KEY, v INT NOT NULL) ENGINE=InnoDB",
			"INSERT INTO outboxtest_lock VALUES (1, 0), (2, 0)",
		},
		upsert:          "INSERT INTO outboxtest_state (k, v) VALUES (?, ?) ON DUPLICATE KEY UPDATE v = VALUES(v)",
		endTransaction:  deadlock,
		failCommit:      disconnect,
		savepointsBlock: gapLocks,
		snapshots:       snapshotIsolation,
		partition:       cutMySQL,
		time:            func(r persistence.Record) any { return r.CreatedTime.UTC().Format("2006-01-02 15:04:05.000000") },
		table:           Naming.Table,
	},
}

// statement runs one statement in the transaction.
func statement(text string) func(context.Context, Face) error {
	return func(ctx context.Context, f Face) error { return f.Exec(ctx, text) }
}

// insert writes an event as a user's own statement does.
func (d dialect) insert(ctx context.Context, f Face, r persistence.Record) error {
	columns := []string{"id", "account_id", "aggregate_type", "aggregate_id", "event_type", "payload"}
	values := []any{r.ID, r.AccountID, r.AggregateType, r.AggregateID, r.EventType, r.Payload}
	if !r.CreatedTime.IsZero() {
		columns, values = append(columns, "created_time"), append(values, d.time(r))
	}
	places := strings.TrimSuffix(strings.Repeat("?, ", len(values)), ", ")
	query := fmt.Sprintf("INSERT INTO %s (%s) VALUES (%s)", d.table(f.Naming, "outbox"), strings.Join(columns, ", "), places)
	_, err := f.Pool.ExecContext(ctx, Numbered(f.Dialect, query), values...)
	return err
}

// Numbered returns a statement with the placeholders that the database's
// drivers know.
func Numbered(dialect, query string) string {
	if dialect != "postgres" {
		return query
	}
	var text strings.Builder
	for i, part := range strings.Split(query, "?") {
		if i > 0 {
			fmt.Fprint(&text, "$", i)
		}
		text.WriteString(part)
	}
	return text.String()
}
