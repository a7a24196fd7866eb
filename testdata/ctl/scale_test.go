package ctl

import (
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// manyRows is how many rows a large table has; make stress asks for more.
var manyRows = flag.Int("rows", 300_000, "rows of the large table of TestWhyReadsFewRows")

const (
	// aSecond is how many events are stamped in a second of the large table.
	aSecond = 2000
	// mostRows is what outboxctl looks at, at most, in one of its calls here.
	mostRows = 20_000
	// passes is how often a row that is looked at may be read: to count keys, to
	// find out where they end, and to select.
	passes = 5
	// besides is what the status of the dispatchers may read.
	besides = 12_000
)

// filler makes a large table, and tells how many rows, or index entries, were read
// in the database, or by a user, by anybody who has disconnected.
type filler struct{ fill, unlogged, read, connected string }

// batch is how many rows one statement makes.
const batch = 1_000_000

// The n-th event from the end is stamped n / aSecond seconds ago, and has a UUIDv7
// of that time.
var fillers = map[string]filler{
	"postgres": {
		fill: `
INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, created_time)
SELECT overlay(lpad(to_hex(floor(extract(epoch FROM at) * 1000)::bigint), 12, '0') PLACING '-' FROM 9 FOR 0) || '-7000-8000-' || lpad(to_hex(n), 12, '0'),
  'User', 'u-' || n, 'iam.v1.UserSuspended', at
FROM generate_series(%[2]d, %[4]d) AS n, LATERAL (SELECT timestamptz 'epoch' + (%[1]d - n::bigint * (1000000 / %[3]d)) * interval '1 microsecond') AS t(at)`,
		read: `
SELECT (SELECT coalesce(sum(idx_tup_read), 0) FROM pg_stat_user_indexes) + (SELECT coalesce(sum(seq_tup_read), 0) FROM pg_stat_user_tables)`,
		connected: `SELECT count(*) FROM pg_stat_activity WHERE application_name = 'outboxctl' AND datname = current_database()`,
	},
	"mysql": {
		unlogged: `SET SESSION sql_log_bin = 0`, // nobody needs the rows a second time
		fill: `
INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, payload, created_time)
WITH RECURSIVE digits (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM digits WHERE i < 999)
SELECT CONCAT(INSERT(LPAD(LOWER(HEX((%[1]d - n * (1000000 DIV %[3]d)) DIV 1000)), 12, '0'), 9, 0, '-'), '-7000-8000-', LPAD(LOWER(HEX(n)), 12, '0')),
  'User', CONCAT('u-', n), 'iam.v1.UserSuspended', '', TIMESTAMP '1970-01-01 00:00:00' + INTERVAL %[1]d - n * (1000000 DIV %[3]d) MICROSECOND
FROM (SELECT %[2]d + high.i * 1000 + low.i AS n FROM digits AS high CROSS JOIN digits AS low) AS numbers WHERE n <= %[4]d`,
		read:      `SELECT COALESCE(SUM(sum_rows_examined), 0) FROM performance_schema.events_statements_summary_by_user_by_event_name WHERE user = '%s'`,
		connected: `SELECT COUNT(*) FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()`,
	},
}

// However large the table is, an answer costs a bounded number of rows read: by
// the whole command, as the server counts them.
func TestWhyReadsFewRows(t *testing.T) {
	t.Parallel()
	for _, server := range kinds() {
		f, counts := fillers[server.Name]
		if !counts { // MariaDB and SQLite count by statement only; testdata/matrix does
			continue
		}
		t.Run(server.Name, func(t *testing.T) {
			t.Parallel()
			s := newSituation(t, server)
			s.pool.SetMaxOpenConns(1)
			require.NoError(t, s.outbox.Migrate(t.Context()))
			end := time.Now().UTC().Truncate(time.Millisecond)
			if f.unlogged != "" {
				s.exec(f.unlogged)
			}
			for first := 1; first <= *manyRows; first += batch {
				s.exec(fmt.Sprintf(f.fill, end.UnixMicro(), first, aSecond, min(first+batch-1, *manyRows)))
			}
			s.exec(map[string]string{"postgres": "VACUUM ANALYZE outbox", "mysql": "ANALYZE TABLE outbox"}[server.Name])
			require.NoError(t, s.outbox.Create(t.Context(), "default", s.latest()))

			read := f.read
			if strings.Contains(read, "%s") {
				s.dsn = s.reader()
				user, _, _ := strings.Cut(s.dsn, "@")
				read = fmt.Sprintf(read, user)
			}
			half := *manyRows / 2
			there := idOf(end, half)
			for name, c := range map[string]struct {
				id, verdict string
				args        []string
				most        int
			}{
				"there, found in the first step": {there, "no-handler", nil, passes * 2 * aSecond},
				"not there, up to the bound":     {there[:24] + "ffffffffffff", "unknown", []string{"--most-rows", fmt.Sprint(mostRows)}, passes*mostRows + besides},
				"not there, in ten seconds":      {there[:24] + "ffffffffffff", "not-found", []string{"--within", "5s", "--most-rows", fmt.Sprint(11 * aSecond)}, passes*11*aSecond + besides},
				"there, since a time":            {there, "no-handler", []string{"--since", end.Add(-time.Duration(half+1) * time.Second / aSecond).Format(time.RFC3339Nano), "--most-rows", "100"}, passes * 100},
			} {
				before := s.number(read)
				ourselves := s.number(read) - before
				before = s.number(read)
				began := time.Now()
				a := s.call(append([]string{"why", c.id}, c.args...)...)
				took := time.Since(began)
				s.eventually("outboxctl has disconnected", func() bool { return s.number(f.connected) == 0 })
				rows := s.number(read) - before - 2*ourselves
				t.Logf("%s: %d rows of %d read in %s", name, rows, *manyRows, took.Round(time.Millisecond))
				require.Contains(t, a.out, c.verdict, a.err)
				require.Positive(t, rows, name)
				require.Less(t, rows, c.most, name)
			}
		})
	}
}

// idOf returns the id of the n-th event from the end.
func idOf(end time.Time, n int) string {
	millis := (end.UnixMicro() - int64(n)*1_000_000/aSecond) / 1000
	hex := fmt.Sprintf("%012x", millis)
	return fmt.Sprintf("%s-%s-7000-8000-%012x", hex[:8], hex[8:], n)
}

func (s *situation) number(query string) (n int) {
	s.Helper()
	require.NoError(s, s.pool.QueryRowContext(s.Context(), query).Scan(&n))
	return n
}
