// Package large makes an outbox of many rows, on the server.
package large

import (
	"fmt"
	"time"
)

// PerSecond is how many events are stamped in a second.
const PerSecond = 2000

// perStatement is how many rows one statement makes.
const perStatement = 1_000_000

// The n-th event from the end is stamped n / PerSecond seconds before it, and has a
// UUIDv7 of that time.
var fill = map[string]string{
	"postgres": `
INSERT INTO %[5]soutbox (id, aggregate_type, aggregate_id, event_type, created_time)
SELECT overlay(lpad(to_hex(floor(extract(epoch FROM at) * 1000)::bigint), 12, '0') PLACING '-' FROM 9 FOR 0) || '-7000-8000-' || lpad(to_hex(n), 12, '0'),
  'User', 'u-' || n, 'iam.v1.UserSuspended', at
FROM generate_series(%[2]d, %[4]d) AS n, LATERAL (SELECT timestamptz 'epoch' + (%[1]d - n::bigint * (1000000 / %[3]d)) * interval '1 microsecond') AS t(at)`,
	"mysql": `
INSERT INTO %[5]soutbox (id, aggregate_type, aggregate_id, event_type, payload, created_time)
WITH RECURSIVE digits (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM digits WHERE i < 999)
SELECT CONCAT(INSERT(LPAD(LOWER(HEX((%[1]d - n * (1000000 DIV %[3]d)) DIV 1000)), 12, '0'), 9, 0, '-'), '-7000-8000-', LPAD(LOWER(HEX(n)), 12, '0')),
  'User', CONCAT('u-', n), 'iam.v1.UserSuspended', '', TIMESTAMP '1970-01-01 00:00:00' + INTERVAL %[1]d - n * (1000000 DIV %[3]d) MICROSECOND
FROM (SELECT %[2]d + high.i * 1000 + low.i AS n FROM digits AS high CROSS JOIN digits AS low) AS numbers WHERE n <= %[4]d`,
}

var analyze = map[string]string{"postgres": "VACUUM ANALYZE %soutbox", "mysql": "ANALYZE TABLE %soutbox"}

// Fill makes so many rows that end at a time, by statements that exec runs, all on
// one connection. Kind is postgres or mysql.
func Fill(exec func(statement string) error, kind, prefix string, end time.Time, rows int) error {
	if kind == "mysql" {
		if err := exec("SET SESSION sql_log_bin = 0"); err != nil { // nobody needs the rows a second time
			return err
		}
	}
	for first := 1; first <= rows; first += perStatement {
		if err := exec(fmt.Sprintf(fill[kind], end.UnixMicro(), first, PerSecond, min(first+perStatement-1, rows), prefix)); err != nil {
			return err
		}
	}
	if kind == "mysql" { // the library refuses a session whose writes no replica gets
		if err := exec("SET SESSION sql_log_bin = 1"); err != nil {
			return err
		}
	}
	return exec(fmt.Sprintf(analyze[kind], prefix))
}

// ID returns the id of the n-th event from the end.
func ID(end time.Time, n int) string {
	millis := (end.UnixMicro() - int64(n)*1_000_000/PerSecond) / 1000
	hex := fmt.Sprintf("%012x", millis)
	return fmt.Sprintf("%s-%s-7000-8000-%012x", hex[:8], hex[8:], n)
}
