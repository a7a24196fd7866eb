package matrix

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/persistence"
)

// scaleReader is the dispatcher that stands where the reader does.
const scaleReader = "scale"

func fillMySQL(t *testing.T, s scale) {
	t.Helper()
	table := s.prefix + "outbox"
	var partitions strings.Builder
	for i := range months - 1 {
		fmt.Fprintf(&partitions, "PARTITION f%d VALUES LESS THAN (TO_DAYS('%s')), ", i, s.first.AddDate(0, i+1, 0).Format(time.DateOnly))
	}
	require.NoError(t, s.db.Exec("ALTER TABLE "+table+" PARTITION BY RANGE (TO_DAYS(created_time)) ("+
		partitions.String()+"PARTITION fmax VALUES LESS THAN MAXVALUE)").Error)
	// Nobody needs these rows a second time, in the binary log.
	require.NoError(t, s.db.Exec("SET SESSION sql_log_bin = 0").Error)
	const batch = 1_000_000
	for from := 0; from < s.rows; from += batch {
		require.NoError(t, s.db.Exec(fmt.Sprintf(`
INSERT INTO %s (id, aggregate_type, aggregate_id, event_type, payload, created_time)
WITH RECURSIVE digits (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM digits WHERE i < 999)
SELECT CONCAT('id-', n), 'a', '1', 't', '', TIMESTAMP '%s' + INTERVAL n * %d MICROSECOND
FROM (SELECT %d + high.i * 1000 + low.i + 1 AS n FROM digits AS high CROSS JOIN digits AS low) AS numbers WHERE n <= %d`,
			table, s.first.Format(time.DateTime), s.step.Microseconds(), from, s.rows)).Error)
	}
	require.NoError(t, s.db.Exec("SET SESSION sql_log_bin = 1").Error) // or the library refuses the session
	require.NoError(t, s.db.Exec("ANALYZE TABLE "+table).Error)
	// The safe mark is there when the ring has come round.
	require.Eventually(t, func() bool {
		rows, err := s.outbox.ReadAfter(t.Context(), persistence.Cursor{}, 1)
		return err == nil && len(rows) == 1
	}, time.Minute, 10*time.Millisecond)
}

// mysqlHandlerReads returns how often each call reads from the storage engine,
// whatever statements it consists of.
func mysqlHandlerReads(t *testing.T, s scale, p place) map[string]int {
	t.Helper()
	total := func() (sum int) {
		var counters []struct {
			Name  string `gorm:"column:Variable_name"`
			Value int    `gorm:"column:Value"`
		}
		require.NoError(t, s.db.Raw("SHOW SESSION STATUS LIKE 'Handler_read%'").Scan(&counters).Error)
		require.NotEmpty(t, counters)
		for _, c := range counters {
			sum += c.Value
		}
		return sum
	}
	require.NoError(t, s.outbox.Create(t.Context(), scaleReader, persistence.Cursor{}))
	require.NoError(t, s.outbox.Rewind(t.Context(), scaleReader, p.after))
	find := func(query persistence.RecordQuery) func() ([]persistence.Record, error) {
		return func() ([]persistence.Record, error) {
			page, err := s.outbox.FindRecords(t.Context(), query)
			return page.Records, err
		}
	}
	// Up to the frontier a dispatcher has what it has read.
	known := func(persistence.Cursor) bool { return true }
	window := func(read persistence.WindowRead) func() ([]persistence.Record, error) {
		read.After, read.Frontier, read.Limit = p.after, p.frontier, batchLimit
		return func() ([]persistence.Record, error) {
			page, err := s.outbox.ReadWindow(t.Context(), read)
			return page.Records, err
		}
	}
	reads := map[string]int{}
	for name, read := range map[string]func() ([]persistence.Record, error){
		"ReadAfter":        func() ([]persistence.Record, error) { return s.outbox.ReadAfter(t.Context(), p.after, batchLimit) },
		"ReadWindow":       window(persistence.WindowRead{Known: known, KnownCount: batchLimit / 2, LateLimit: batchLimit}),
		"ReadWindow, late": window(persistence.WindowRead{LateLimit: batchLimit / 10}),
		"ReadStatus": func() ([]persistence.Record, error) {
			_, err := s.outbox.ReadStatus(t.Context(), scaleReader)
			return nil, err
		},
		"FindRecords":            find(persistence.RecordQuery{After: p.after, EventType: "t", Limit: batchLimit, MostRows: batchLimit / 4}),
		"FindRecords, backwards": find(persistence.RecordQuery{After: p.after, EventType: "t", Limit: batchLimit, MostRows: batchLimit / 4, Backwards: true}),
	} {
		before := total()
		ourselves := total() - before
		before = total()
		_, err := read()
		require.NoError(t, err)
		reads[name] = total() - before - ourselves
	}
	return reads
}
