package sqlstore

import (
	"strings"
	"time"

	"github.com/onward-go/outbox/schema"
)

// SQLite is SQLite 3.42 and newer, through any driver. Times are integers,
// microseconds since the Unix epoch.
var SQLite = &Dialect{
	Name:        schema.SQLite,
	encodeTime:  func(t time.Time) any { return t.UnixMicro() },
	newSafeMark: func() markReader { return oneStatementMark },
	judge:       judgeSQLite,
	isTransient: sqliteIsTransient,
	// A deferred transaction that reads first and writes later fails when
	// somebody else has written in between.
	Begin:     []string{Rollback, `BEGIN IMMEDIATE`},
	ProbeOpen: `BEGIN`,
	IsOpen:    func(err error) bool { return strings.Contains(err.Error(), "within a transaction") },
	OneWriter: true,

	watchesTables: true,
	advise:        sqliteAdvice,
	statements: statements{
		// There is one writer at a time, so a stamp above every stamp so far is
		// above everything visible, and the order of stamps is that of
		// commits. Above every row that a cursor has passed, too, in case the
		// clock was set back after rows were dropped. The clock alone has ties.
		AppendRecord: `
INSERT INTO "{prefix}outbox" (id, account_id, aggregate_type, aggregate_id, event_type, payload, created_time)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, max(CAST(unixepoch('subsec') * 1000000 AS INTEGER),
  1 + coalesce((SELECT max(created_time) FROM "{prefix}outbox"), 0),
  1 + coalesce((SELECT max(high_water) FROM "{prefix}outbox_cursors"), 0)))`,

		// The same for many. The substr of an empty blob is NULL.
		AppendRecords: `
WITH stamp AS MATERIALIZED (
  SELECT max(CAST(unixepoch('subsec') * 1000000 AS INTEGER),
    1 + coalesce((SELECT max(created_time) FROM "{prefix}outbox"), 0),
    1 + coalesce((SELECT max(high_water) FROM "{prefix}outbox_cursors"), 0)) AS first
)
INSERT INTO "{prefix}outbox" (id, account_id, aggregate_type, aggregate_id, event_type, payload, created_time)
SELECT r.value ->> 'id', r.value ->> 'account_id', r.value ->> 'aggregate_type', r.value ->> 'aggregate_id',
  r.value ->> 'event_type', coalesce(substr(?2, (r.value ->> 'start') + 1, r.value ->> 'size'), x''), stamp.first + r.key
FROM stamp, json_each(?1) AS r ORDER BY r.key`,

		// Everything visible is below the mark, and everything to come above.
		SafeMark: `
SELECT CAST(unixepoch('subsec') * 1000000 AS INTEGER),
  1 + max(coalesce((SELECT max(created_time) FROM "{prefix}outbox"), 0),
          coalesce((SELECT max(high_water) FROM "{prefix}outbox_cursors"), 0)), 1`,

		ReadAfter: `
SELECT 1, created_time, id, account_id, aggregate_type, aggregate_id, event_type, payload
FROM "{prefix}outbox" WHERE (created_time, id) > (?1, ?2) AND created_time < ?3
ORDER BY created_time, id LIMIT ?4`,

		ReadWindow:      sqliteReadWindow.whole(),
		ReadWindowHeads: sqliteReadWindow.heads(),

		ReadKeys:      sqliteReadKeys.whole(),
		ReadKeysHeads: sqliteReadKeys.heads(),

		CountRows: `
SELECT created_time / ?3 * ?3 AS bucket, count(*), sum(created_time % ?3)
FROM "{prefix}outbox" WHERE created_time >= ?1 AND created_time < ?2
GROUP BY bucket ORDER BY bucket`,

		RecordMarker: `
INSERT INTO "{prefix}outbox_idempotency" (created_time, event_id, handler) VALUES (?1, ?2, ?3)
ON CONFLICT (created_time, event_id, handler) DO NOTHING`,

		RecordMarkers: `
INSERT INTO "{prefix}outbox_idempotency" (created_time, event_id, handler)
SELECT k.value ->> 'micros', k.value ->> 'id', k.value ->> 'handler' FROM json_each(?1) AS k WHERE true
ON CONFLICT (created_time, event_id, handler) DO NOTHING
RETURNING created_time, event_id, handler`,

		AppliedMarkers: `
SELECT k.key + 1
FROM json_each(?1) AS k CROSS JOIN "{prefix}outbox_idempotency" AS m
  ON m.created_time = k.value ->> 'micros' AND m.event_id = k.value ->> 'id' AND m.handler = k.value ->> 'handler'`,

		// WHERE tells the parser that ON is no join.
		ReserveKeys: `
INSERT INTO "{prefix}outbox_dedup" (account_id, dedup_key, created_time)
SELECT k.value ->> 'account_id', k.value ->> 'key', CAST(unixepoch('subsec') * 1000000 AS INTEGER)
FROM json_each(?1) AS k WHERE true ORDER BY k.key
ON CONFLICT (account_id, dedup_key) DO NOTHING
RETURNING account_id, dedup_key`,

		ReleaseKeys: `
DELETE FROM "{prefix}outbox_dedup" WHERE (account_id, dedup_key) IN (
  SELECT k.value ->> 'account_id', k.value ->> 'key' FROM json_each(?1) AS k)`,

		PurgeKeys: `
DELETE FROM "{prefix}outbox_dedup" WHERE (account_id, dedup_key) IN (
  SELECT account_id, dedup_key FROM "{prefix}outbox_dedup" WHERE created_time < ?1 ORDER BY created_time LIMIT ?2)`,

		sidecarStatements: sqliteSidecar,
		inspectStatements: sqliteInspect,
		statusStatements:  sqliteStatus,

		OutboxTable: `"{prefix}outbox"`,
		MarkerTable: `"{prefix}outbox_idempotency"`,

		NextEvent: `
SELECT created_time, id FROM "{prefix}outbox"
WHERE (created_time, id) > (?1, ?2) AND created_time < ?3
ORDER BY created_time, id LIMIT 1`,

		// The one write beside the insert: there are no partitions to drop.
		ForgetEvents: `
DELETE FROM "{prefix}outbox" WHERE (created_time, id) IN (
  SELECT created_time, id FROM "{prefix}outbox" WHERE created_time < ?1 ORDER BY created_time, id LIMIT ?2)`,

		ForgetMarkers: `
DELETE FROM "{prefix}outbox_idempotency" WHERE (created_time, event_id, handler) IN (
  SELECT created_time, event_id, handler FROM "{prefix}outbox_idempotency" WHERE created_time < ?1
  ORDER BY created_time, event_id, handler LIMIT ?2)`,

		DescribeServer: `
SELECT 'version', sqlite_version()
UNION ALL SELECT 'read_uncommitted', read_uncommitted FROM pragma_read_uncommitted
UNION ALL SELECT 'busy_timeout', timeout FROM pragma_busy_timeout
UNION ALL SELECT 'file', coalesce(file, '') FROM pragma_database_list WHERE name = 'main'`,

		// Names are looked for among the temporary ones of the connection first.
		DescribeTables: `
SELECT name, CASE type WHEN 'view' THEN 'no table' ELSE 'temporary' END, ''
FROM (SELECT name, type FROM sqlite_temp_master UNION ALL SELECT name, type FROM sqlite_master WHERE type = 'view')
WHERE type IN ('table', 'view') AND lower(name) IN (lower('{prefix}outbox_schema'), lower('{prefix}outbox'), lower('{prefix}outbox_idempotency'),
  lower('{prefix}outbox_dedup'), lower('{prefix}outbox_cursors'), lower('{prefix}outbox_subscriptions'), lower('{prefix}outbox_audit'),
  lower('{prefix}outbox_attempts'), lower('{prefix}outbox_dead_letters'))`,

		FindSchema:     `SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = '{prefix}outbox_schema'`,
		SchemaVersions: `SELECT version FROM "{prefix}outbox_schema"`,
		// BEGIN IMMEDIATE is the lock.
		LockMigrations: ``,
	},
}
