package ctl

import (
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/testdata/large"
)

// manyRows is how many rows a large table has; make stress asks for more.
var manyRows = flag.Int("rows", 300_000, "rows of the large table of TestWhyReadsFewRows")

const (
	// mostRows is what outboxctl looks at, at most, in one of its calls here.
	mostRows = 20_000
	// passes is how often a row that is looked at may be read: to count keys, to
	// find out where they end, and to select.
	passes = 5
	// besides is what the status of the dispatchers may read.
	besides = 12_000
)

// readers tell how many rows, or index entries, were read in the database, or by a
// user, by anybody who has disconnected.
var readers = map[string]struct{ read, connected string }{
	"postgres": {
		read: `
SELECT (SELECT coalesce(sum(idx_tup_read), 0) FROM pg_stat_user_indexes) + (SELECT coalesce(sum(seq_tup_read), 0) FROM pg_stat_user_tables)`,
		connected: `SELECT count(*) FROM pg_stat_activity WHERE application_name = 'outboxctl' AND datname = current_database()`,
	},
	"mysql": {
		read:      `SELECT COALESCE(SUM(sum_rows_examined), 0) FROM performance_schema.events_statements_summary_by_user_by_event_name WHERE user = '%s'`,
		connected: `SELECT COUNT(*) FROM performance_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()`,
	},
}

// However large the table is, an answer costs a bounded number of rows read: by
// the whole command, as the server counts them.
func TestWhyReadsFewRows(t *testing.T) {
	t.Parallel()
	for _, server := range kinds() {
		f, counts := readers[server.Name]
		if !counts { // MariaDB and SQLite count by statement only; testdata/matrix does
			continue
		}
		t.Run(server.Name, func(t *testing.T) {
			t.Parallel()
			s := newSituation(t, server)
			s.pool.SetMaxOpenConns(1)
			require.NoError(t, s.outbox.Migrate(t.Context()))
			end := time.Now().UTC().Truncate(time.Millisecond)
			require.NoError(t, large.Fill(func(statement string) error {
				s.exec(statement)
				return nil
			}, server.Name, "", end, *manyRows))
			require.NoError(t, s.outbox.Create(t.Context(), "default", s.latest()))

			read := f.read
			if strings.Contains(read, "%s") {
				s.dsn = s.reader()
				user, _, _ := strings.Cut(s.dsn, "@")
				read = fmt.Sprintf(read, user)
			}
			half := *manyRows / 2
			there := large.ID(end, half)
			for name, c := range map[string]struct {
				id, verdict string
				args        []string
				most        int
			}{
				"there, found in the first step": {there, "no-handler", nil, passes * 2 * large.PerSecond},
				"not there, up to the bound":     {there[:24] + "ffffffffffff", "unknown", []string{"--most-rows", fmt.Sprint(mostRows)}, passes*mostRows + besides},
				"not there, in ten seconds":      {there[:24] + "ffffffffffff", "not-found", []string{"--within", "5s", "--most-rows", fmt.Sprint(11 * large.PerSecond)}, passes*11*large.PerSecond + besides},
				"there, since a time":            {there, "no-handler", []string{"--since", end.Add(-time.Duration(half+1) * time.Second / large.PerSecond).Format(time.RFC3339Nano), "--most-rows", "100"}, passes * 100},
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

func (s *situation) number(query string) (n int) {
	s.Helper()
	require.NoError(s, s.pool.QueryRowContext(s.Context(), query).Scan(&n))
	return n
}
