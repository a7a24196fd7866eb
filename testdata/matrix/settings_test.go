package matrix

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/persistence"
	"github.com/onward-go/outbox/sqltx"
)

// setting is one that is tried: all works as ever, or the outbox is refused with
// what is given.
type setting struct{ name, value, refusal string }

// triedSettings are the others, by the kind of server.
var triedSettings = map[string][]setting{
	"postgres": {
		{"client_encoding", "LATIN1", "client_encoding is LATIN1"},
		{"client_encoding", "SQL_ASCII", ""},
		{"DateStyle", "German", ""},
		{"DateStyle", "SQL", ""},
		{"IntervalStyle", "sql_standard", ""},
		{"TimeZone", "Asia/Shanghai", ""},
		{"timezone_abbreviations", "India", ""},
		{"bytea_output", "escape", ""},
		{"extra_float_digits", "-15", ""},
		{"standard_conforming_strings", "off", ""},
		{"escape_string_warning", "off", ""},
		{"backslash_quote", "off", ""},
		{"array_nulls", "off", ""},
		{"quote_all_identifiers", "on", ""},
		{"transform_null_equals", "on", ""},
		{"default_transaction_isolation", "serializable", ""},
		{"default_transaction_isolation", `repeatable\ read`, ""},
		{"default_transaction_deferrable", "on", ""},
		{"default_transaction_read_only", "on", "read-only"},
		{"session_replication_role", "replica", ""},
		{"row_security", "off", ""},
		{"enable_partition_pruning", "off", ""},
		{"enable_nestloop", "off", ""},
		{"constraint_exclusion", "on", ""},
		{"plan_cache_mode", "force_generic_plan", ""},
		{"search_path", "nowhere", "outbox is missing"},
		{"exit_on_error", "on", ""},
	},
	// What differs where values are sent as text.
	"postgres as text": {
		{"DateStyle", "German", `DateStyle is "German, DMY"`},
		{"DateStyle", "ISO", ""},
		{"IntervalStyle", "sql_standard", ""},
		{"TimeZone", "Asia/Shanghai", ""},
		{"bytea_output", "escape", "bytea_output escape"},
		{"extra_float_digits", "-15", ""},
		{"standard_conforming_strings", "off", "standard_conforming_strings=on"}, // pgx says so
	},
	"mysql": {
		{"autocommit", "0", "autocommit is off"},
		{"sql_select_limit", "0", "sql_select_limit"},
		{"sql_select_limit", "3", "sql_select_limit"},
		{"sql_select_limit", "100000", "sql_select_limit"},
		{"completion_type", "1", "completion_type is CHAIN"},
		{"completion_type", "2", "completion_type is RELEASE"},
		{"sql_safe_updates", "1", "sql_safe_updates is on"},
		{"sql_big_selects", "0", ""},
		{"max_join_size", "10", "max_join_size"},
		{"unique_checks", "0", "unique_checks is off"},
		{"foreign_key_checks", "0", ""},
		{"sql_log_bin", "0", "kept from replicas"},
		{"timestamp", "1700000000", "timestamp is set"},
		{"time_zone", "'-03:30'", ""},
		{"binlog_format", "'STATEMENT'", "binlog_format is STATEMENT"},
		{"character_set_client", "latin1", "character_set_client is latin1"},
		{"character_set_connection", "latin1", "character_set_connection is latin1"},
		{"character_set_results", "latin1", "character_set_results is latin1"},
		{"character_set_results", "NULL", ""},
		{"collation_connection", "utf8mb4_turkish_ci", ""},
		{"div_precision_increment", "0", ""},
		{"group_concat_max_len", "4", ""},
		{"max_sort_length", "8", ""},
		{"default_week_format", "7", ""},
		{"lc_time_names", "'ja_JP'", ""},
		{"sql_auto_is_null", "1", ""},
		{"sql_buffer_result", "1", ""},
		{"low_priority_updates", "1", ""},
		{"updatable_views_with_limit", "0", ""},
		{"optimizer_switch", "'derived_merge=off'", ""},
		{"sql_mode", "''", ""},
		{"sql_mode", "'ANSI,HIGH_NOT_PRECEDENCE,NO_BACKSLASH_ESCAPES,NO_UNSIGNED_SUBTRACTION,PAD_CHAR_TO_FULL_LENGTH'", ""},
		{"sql_mode", "'TRADITIONAL,NO_DIR_IN_CREATE,NO_AUTO_VALUE_ON_ZERO'", ""},
	},
	"mysql alone": {
		{"transaction_isolation", "'READ-UNCOMMITTED'", "READ UNCOMMITTED"},
		{"transaction_isolation", "'SERIALIZABLE'", ""},
		{"transaction_read_only", "1", "read-only"},
		{"require_row_format", "1", "require_row_format"},
		{"sql_mode", "'TIME_TRUNCATE_FRACTIONAL'", ""},
	},
	"mariadb alone": {
		{"tx_isolation", "'READ-UNCOMMITTED'", "READ UNCOMMITTED"},
		{"tx_isolation", "'SERIALIZABLE'", ""},
		{"tx_read_only", "1", "read-only"},
		{"skip_replication", "1", "kept from replicas"},
		{"sql_mode", "'ORACLE'", "sql_mode has ORACLE"},
		{"sql_mode", "'EMPTY_STRING_IS_NULL'", "sql_mode has EMPTY_STRING_IS_NULL"},
		{"sql_mode", "'MSSQL,SIMULTANEOUS_ASSIGNMENT,TIME_ROUND_FRACTIONAL'", ""},
		{"old_mode", "'NO_DUP_KEY_WARNINGS_WITH_IGNORE,ZERO_DATE_TIME_CAST,UTF8_IS_UTF8MB3'", ""},
		{"sql_if_exists", "1", ""},
		{"check_constraint_checks", "0", ""},
		{"standard_compliant_cte", "0", ""},
		{"innodb_snapshot_isolation", "1", ""},
	},
	"sqlite": {
		{"read_uncommitted", "1", "read_uncommitted is on"},
		{"query_only", "1", "read"},
		{"foreign_keys", "0", ""},
		{"defer_foreign_keys", "1", ""},
		{"recursive_triggers", "1", ""},
		{"case_sensitive_like", "1", ""},
		{"reverse_unordered_selects", "1", ""},
		{"ignore_check_constraints", "1", ""},
		{"writable_schema", "1", ""},
		{"count_changes", "1", ""},
		{"automatic_index", "0", ""},
		{"trusted_schema", "0", ""},
		{"legacy_alter_table", "1", ""},
		{"cell_size_check", "1", ""},
		{"short_column_names", "0", ""},
		{"full_column_names", "1", ""},
	},
}

// settingsOf is where to find what a session of a server can set, and what is tried
// there.
func settingsOf(server Server) (driver, list string, dialect sqltx.Dialect, tried []string) {
	switch server.Name {
	case "sqlite":
		return "sqlite", "SELECT name FROM pragma_pragma_list", sqltx.SQLite, []string{"sqlite"}
	case "mysql":
		return "mysql", "SELECT LOWER(variable_name) FROM performance_schema.variables_metadata WHERE variable_scope LIKE 'SESSION%'", sqltx.MySQL, []string{"mysql", "mysql alone"}
	case "mariadb":
		return "mysql", "SELECT LOWER(variable_name) FROM information_schema.system_variables WHERE variable_scope LIKE 'SESSION%' AND read_only = 'NO'", sqltx.MySQL, []string{"mysql", "mariadb alone"}
	}
	return "pgx", "SELECT name FROM pg_settings WHERE context IN ('user', 'superuser', 'backend', 'superuser-backend') AND name NOT LIKE '%.%'", sqltx.Postgres, []string{"postgres", "postgres as text"}
}

// No setting of a session makes an event be passed, or keeps it from being delivered,
// without a refusal that says what to do. There is none of whose effect nobody has
// thought.
func TestSessionSettings(t *testing.T) {
	for _, server := range Servers {
		t.Run(server.Name, func(t *testing.T) {
			t.Parallel()
			driver, list, dialect, tried := settingsOf(server)
			dsn := server.New(t)
			plain := openSQL(t, driver, dsn)
			require.NoError(t, sqltx.New(plain, dialect).Migrate(t.Context()))
			known := map[string]bool{}
			for _, h := range harmlessSettings[string(dialect)] {
				for _, name := range strings.Fields(h.names) {
					require.False(t, known[name], name)
					known[name] = true
				}
			}
			for _, group := range tried {
				for _, s := range triedSettings[group] {
					known[s.name] = true
					if strings.HasSuffix(server.Name, "15") && s.name == "exit_on_error" {
						continue
					}
					t.Run(group+" "+s.name+"="+s.value, func(t *testing.T) {
						trySetting(t, s, openSQL(t, driver, withSetting(dsn, group, s)), plain, dialect)
					})
				}
			}
			rows, err := plain.QueryContext(t.Context(), list)
			require.NoError(t, err)
			defer rows.Close()
			for rows.Next() {
				var name string
				require.NoError(t, rows.Scan(&name))
				require.True(t, known[name], "%s: what does it change? put it into harmlessSettings or triedSettings", name)
			}
			require.NoError(t, rows.Err())
		})
	}
}

func openSQL(t *testing.T, driver, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

func withSetting(dsn, group string, s setting) string {
	switch {
	case group == "sqlite":
		return fmt.Sprintf("%s&_pragma=%s(%s)", dsn, s.name, s.value)
	case strings.HasPrefix(group, "postgres"):
		dsn += withOptions("-c " + s.name + "=" + s.value)
		if group == "postgres as text" {
			dsn += "&default_query_exec_mode=simple_protocol"
		}
		return dsn
	}
	return dsn + "?" + s.name + "=" + url.QueryEscape(s.value)
}

// withOptions is what a DSN of PostgreSQL has for options of the session.
func withOptions(options string) string {
	return "&options=" + strings.ReplaceAll(url.QueryEscape(options), "+", "%20")
}

// trySetting publishes and dispatches in sessions with a setting.
func trySetting(t *testing.T, s setting, db, plain *sql.DB, dialect sqltx.Dialect) {
	outbox := sqltx.New(db, dialect)
	v, err := outbox.Validate(t.Context())
	if s.refusal == "" {
		require.NoError(t, err)
		require.NoError(t, works(t.Context(), outbox, plain))
		return
	}
	require.ErrorContains(t, err, s.refusal)
	for _, f := range v.Findings {
		require.NotEmpty(t, f.Remedy)
	}
	require.ErrorContains(t, works(t.Context(), outbox, plain), s.refusal)
	_, err = persistence.Retain(t.Context(), outbox, 90*day, persistence.RetentionOptions{})
	require.ErrorContains(t, err, s.refusal)
}

// works publishes, dispatches, replays, rewinds and runs retention with one outbox,
// and compares what has come of it with what another session sees.
func works(ctx context.Context, outbox *sqltx.Outbox, plain *sql.DB) error {
	name := events.NewID()
	start := persistence.Cursor{CreatedTime: time.Now().Add(-time.Second)} // before all of its events
	if err := outbox.Create(ctx, name, start); err != nil {
		return err
	}
	d := events.NewDispatcher(outbox, outbox, outbox, outbox, events.WithName(name))
	var mu sync.Mutex
	seen := map[string]int{}
	failed := false
	err := errors.Join(
		d.Subscribe(name, "single "+name, func(_ context.Context, e events.Event) error {
			mu.Lock()
			defer mu.Unlock()
			seen[e.ID+e.AccountID+string(e.Payload)]++
			return nil
		}),
		d.Subscribe(name, "fails "+name, func(_ context.Context, e events.Event) error {
			mu.Lock()
			defer mu.Unlock()
			if !failed {
				failed = true
				return errOnce
			}
			if strings.HasPrefix(e.ID, "dead") {
				return events.Permanent(errOnce)
			}
			return nil
		}),
		d.SubscribeBatch(name, "batch "+name, func(context.Context, []events.Event) error { return nil }),
	)
	evts := make([]events.Event, 24)
	for i := range evts {
		evts[i] = events.Event{
			ID: fmt.Sprint(i, "-", name), Type: name, AggregateType: "a", AggregateID: fmt.Sprint(i % 7),
			AccountID: `é\'"😀 `, Payload: fmt.Appendf(nil, "\\x00'\\ \x00\xff%d", i),
		}
	}
	evts[3].ID = "dead" + name
	evts[20].DedupKey, evts[21].DedupKey = name, name+"-2"
	publish := func(evts ...events.Event) error {
		return outbox.Atomically(ctx, func(ctx context.Context) error { return events.NewPublisher(outbox).Publish(ctx, evts...) })
	}
	for _, part := range [][]events.Event{evts[:1], evts[1:4], evts[4:]} {
		err = errors.Join(err, publish(part...))
	}
	if err != nil {
		return err
	}
	again := evts[20]
	again.ID = events.NewID()
	if err := publish(again); !errors.Is(err, persistence.ErrDuplicate) {
		return fmt.Errorf("the key is taken: %w", err)
	}
	if err := runDry(ctx, d); err != nil {
		return err
	}
	letters, err := outbox.ListDeadLetters(ctx, persistence.DeadLetterQuery{Dispatcher: name, State: persistence.DeadLetterDead, Limit: 10})
	if err != nil || len(letters) != 1 {
		return fmt.Errorf("%d dead letters: %w", len(letters), err)
	}
	if _, err := d.Status(ctx); err != nil {
		return err
	}
	// All of it is read once more.
	if err := outbox.Rewind(ctx, name, start); err != nil {
		return err
	}
	if err := runDry(ctx, d); err != nil {
		return err
	}
	for _, e := range evts {
		if n := seen[e.ID+e.AccountID+string(e.Payload)]; n != 1 || len(seen) != len(evts) {
			return fmt.Errorf("event %s was handled %d times, among %d", e.ID, n, len(seen))
		}
	}
	for query, want := range map[string]int{
		"SELECT count(*) FROM outbox WHERE event_type = '" + name + "'":              len(evts),
		"SELECT count(*) FROM outbox_idempotency WHERE handler LIKE '%" + name + "'": 3 * len(evts),
	} {
		var n int
		if err := plain.QueryRowContext(ctx, query).Scan(&n); err != nil || n != want {
			return fmt.Errorf("another session sees %d rows, not %d: %s: %w", n, want, query, err)
		}
	}
	report, err := persistence.Retain(ctx, outbox, 90*day, persistence.RetentionOptions{})
	if len(report.Created)+len(report.Dropped) > 0 {
		err = errors.Join(err, fmt.Errorf("retention has found something to do: %v", report))
	}
	return errors.Join(err, outbox.Forget(ctx, name))
}

var errOnce = errors.New("not this time")

// runDry runs a dispatcher until nothing is left.
func runDry(ctx context.Context, d *events.Dispatcher) error {
	for {
		n, err := d.RunOnce(ctx, 1000)
		if errors.Is(err, errOnce) || errors.Is(err, events.ErrDeadLettered) {
			continue
		}
		if err != nil || n == 0 {
			return err
		}
	}
}

// A partition's bounds are read aright whatever the session's style and zone: CST is
// Shanghai's here, and Chicago's to a session that reads it.
func TestPostgresPartitionsAreReadInAnyStyle(t *testing.T) {
	t.Parallel()
	dsn := PostgresDSN(t)
	plain := openSQL(t, "pgx", dsn)
	require.NoError(t, sqltx.New(plain, sqltx.Postgres).Migrate(t.Context()))
	var want []persistence.PartitionStatus
	for i, options := range []string{"", `-c DateStyle=SQL,DMY -c TimeZone=Asia/Shanghai`, `-c DateStyle=Postgres,MDY -c TimeZone=Asia/Shanghai -c standard_conforming_strings=off`} {
		outbox := sqltx.New(openSQL(t, "pgx", dsn+withOptions(options)), sqltx.Postgres)
		status, err := outbox.ReadStatus(t.Context())
		require.NoError(t, err)
		if i == 0 {
			want = status.Partitions
		}
		require.NotEmpty(t, want)
		require.True(t, slices.EqualFunc(want, status.Partitions, func(a, b persistence.PartitionStatus) bool { return a.Table == b.Table && a.Through.Equal(b.Through) }),
			"%v: %v", options, status.Partitions)
	}
}
