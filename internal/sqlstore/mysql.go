package sqlstore

import "github.com/onward-go/outbox/schema"

// MySQL is MySQL 8.0.16 and newer and MariaDB 10.6 and newer. Times are UTC,
// written and read as text, so that neither the driver's location nor the
// session's time zone can change them.
//
// A row's stamp is the time after its fence is locked. SYSDATE moves on within
// the statement, but is local; UTC_TIMESTAMP stands still, like NOW. So the
// stamp is UTC_TIMESTAMP plus the time from NOW to SYSDATE. That difference is
// taken modulo 15 minutes, around zero, which hides a change of daylight
// saving time in between.
var MySQL = &Dialect{
	Name:            schema.MySQL,
	encodeTime:      encodeMySQLTime,
	newSafeMark:     newFence,
	wrap:            newNumbered,
	judge:           judgeMySQL,
	isDuplicate:     func(err error) bool { return mysqlNumber(err) == 1062 },
	endsTransaction: mysqlEndsTransaction,
	isTransient:     mysqlIsTransient,
	lacksPrivilege:  mysqlLacksPrivilege,
	tellsLife:       true,
	lostConnection:  "invalid connection",
	refuses:         mysqlRefuses,
	advise:          mysqlAdvice,
	partitions:      mysqlPartitions{},
	isLockTimeout:   mysqlIsLockTimeout,
	hidesHolders:    func(err error) bool { return mysqlNumber(err) != 0 },

	commitsImplicitly: mysqlCommits,
	// Characteristics cannot be changed inside a transaction. Outside it sets
	// those of the next one, to what they are by default.
	ProbeOpen:    `SET TRANSACTION READ WRITE`,
	IsOpen:       func(err error) bool { return mysqlNumber(err) == 1568 },
	MayHaveEnded: mysqlMayHaveEnded,

	CountPrepared: `SHOW SESSION STATUS WHERE Variable_name = ?`,
	PreparedRoom:  `SELECT @@GLOBAL.max_prepared_stmt_count DIV 2 DIV @@GLOBAL.max_connections`,
	OutOfPrepared: func(err error) bool { return mysqlNumber(err) == 1461 },
	statements: statements{
		// Lock first, stamp after. The producer holds a shared lock on the
		// ring's row of its time until it ends.
		AppendRecord: `
INSERT INTO {prefix}outbox (id, account_id, aggregate_type, aggregate_id, event_type, payload, created_time)
SELECT ?1, ?2, ?3, ?4, ?5, ?6,
  UTC_TIMESTAMP(6) + INTERVAL (TIMESTAMPDIFF(MICROSECOND, NOW(6), SYSDATE(6)) + 86850000000) MOD 900000000 - 450000000 MICROSECOND
FROM {prefix}outbox_fence WHERE slot = FLOOR(UNIX_TIMESTAMP(NOW(6)) * 20) MOD 64 LOCK IN SHARE MODE`,

		// The same for many, with one stamp that is counted up, since SYSDATE
		// may stand still between two rows. LIMIT keeps the subquery from being
		// merged, which would stamp each row. CONVERT, since MariaDB counts
		// characters in what is CAST to binary, if it is no valid text.
		AppendRecords: `
INSERT INTO {prefix}outbox (id, account_id, aggregate_type, aggregate_id, event_type, payload, created_time)
SELECT r.id, r.account_id, r.aggregate_type, r.aggregate_id, r.event_type,
  SUBSTRING(CONVERT(?2 USING binary), r.start + 1, r.size),
  stamp.first + INTERVAL r.number - 1 MICROSECOND
FROM (
  SELECT UTC_TIMESTAMP(6) + INTERVAL (TIMESTAMPDIFF(MICROSECOND, NOW(6), SYSDATE(6)) + 86850000000) MOD 900000000 - 450000000 MICROSECOND AS first
  FROM {prefix}outbox_fence WHERE slot = FLOOR(UNIX_TIMESTAMP(NOW(6)) * 20) MOD 64 LIMIT 1 LOCK IN SHARE MODE
) AS stamp
JOIN JSON_TABLE(?1, '$[*]' COLUMNS (
  number FOR ORDINALITY,
  id VARCHAR(64) CHARACTER SET utf8mb4 PATH '$.id',
  account_id VARCHAR(255) CHARACTER SET utf8mb4 PATH '$.account_id',
  aggregate_type VARCHAR(255) CHARACTER SET utf8mb4 PATH '$.aggregate_type',
  aggregate_id VARCHAR(255) CHARACTER SET utf8mb4 PATH '$.aggregate_id',
  event_type VARCHAR(255) CHARACTER SET utf8mb4 PATH '$.event_type',
  start BIGINT PATH '$.start',
  size BIGINT PATH '$.size'
)) AS r`,

		// The time, the ring's row of now, and who answers.
		SampleClock: `
SELECT CAST(UTC_TIMESTAMP(6) AS CHAR), FLOOR(UNIX_TIMESTAMP(NOW(6)) * 20) MOD 64, CASE WHEN @@global.read_only THEN 0 ELSE @@server_id + 1 END`,

		// The rows that no producer holds. It is a transaction of its own and
		// waits for nobody; nothing is ever written here.
		SafeMark: `
SELECT slot FROM {prefix}outbox_fence WHERE slot <> ?1 FOR UPDATE SKIP LOCKED`,

		// MySQL does not scan a range for a row comparison, so it is spelled
		// out. The first row makes the server tell who it is even when there is
		// no other.
		ReadAfter: `
SELECT CASE WHEN @@global.read_only THEN 0 ELSE @@server_id + 1 END, NULL, '', '', '', '', '', NULL
UNION ALL
(SELECT CASE WHEN @@global.read_only THEN 0 ELSE @@server_id + 1 END, CAST(created_time AS CHAR), id, account_id, aggregate_type, aggregate_id, event_type, payload
 FROM {prefix}outbox
 WHERE created_time >= ?1 AND (created_time > ?1 OR id > ?2) AND created_time < ?3
 ORDER BY created_time, id LIMIT ?4)`,

		ReadWindow:      mysqlReadWindow.whole(),
		ReadWindowHeads: mysqlReadWindow.heads(),

		ReadKeys:      mysqlReadKeys.whole(),
		ReadKeysHeads: mysqlReadKeys.heads(),

		// Buckets divide a minute.
		CountRows: `
SELECT CAST(TIMESTAMPADD(SECOND, TIMESTAMPDIFF(SECOND, '1970-01-01', created_time) DIV (?3 DIV 1000000) * (?3 DIV 1000000), '1970-01-01') AS CHAR) AS bucket, COUNT(*),
  CAST(SUM((SECOND(created_time) * 1000000 + MICROSECOND(created_time)) MOD ?3) AS SIGNED)
FROM {prefix}outbox WHERE created_time >= ?1 AND created_time < ?2
GROUP BY bucket ORDER BY bucket`,

		// A plain INSERT: error 1062 alone says that it exists. INSERT IGNORE
		// would also swallow a missing partition or a bad value.
		RecordMarker: `
INSERT INTO {prefix}outbox_idempotency (created_time, event_id, handler) VALUES (?1, ?2, ?3)`,

		RecordMarkerDurably: `
INSERT INTO {prefix}outbox_idempotency (created_time, event_id, handler)
SELECT ?1, ?2, ?3 FROM DUAL WHERE ` + mysqlServer + ` = ?4 AND ` + mysqlIsDurable,

		RecordMarkerInLife: `
INSERT INTO {prefix}outbox_idempotency (created_time, event_id, handler)
SELECT ?1, ?2, ?3 FROM DUAL WHERE ` + mysqlLife + ` = ?4`,

		// A duplicate undoes the whole statement.
		RecordMarkers: `
INSERT INTO {prefix}outbox_idempotency (created_time, event_id, handler)
SELECT k.at, k.id, k.handler
FROM JSON_TABLE(?1, '$[*]' COLUMNS (at DATETIME(6) PATH '$.at',
  id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin PATH '$.id', handler VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$.handler')) AS k`,

		RecordMarkersDurably: `
INSERT INTO {prefix}outbox_idempotency (created_time, event_id, handler)
SELECT k.at, k.id, k.handler
FROM JSON_TABLE(?1, '$[*]' COLUMNS (at DATETIME(6) PATH '$.at',
  id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin PATH '$.id', handler VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$.handler')) AS k
WHERE ` + mysqlServer + ` = ?2 AND ` + mysqlIsDurable,

		RecordMarkersInLife: `
INSERT INTO {prefix}outbox_idempotency (created_time, event_id, handler)
SELECT k.at, k.id, k.handler
FROM JSON_TABLE(?1, '$[*]' COLUMNS (at DATETIME(6) PATH '$.at',
  id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin PATH '$.id', handler VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$.handler')) AS k
WHERE ` + mysqlLife + ` = ?2`,

		AppliedMarkers: `
SELECT k.number
FROM JSON_TABLE(?1, '$[*]' COLUMNS (number FOR ORDINALITY, at DATETIME(6) PATH '$.at',
  id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin PATH '$.id', handler VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$.handler')) AS k
STRAIGHT_JOIN {prefix}outbox_idempotency AS m ON m.created_time = k.at AND m.event_id = k.id AND m.handler = CAST(k.handler AS BINARY)`,

		// Like RecordMarker: all or none, since a statement that fails is taken
		// back. The order is the one in which everybody takes the keys. Of those
		// that wait for a key whose owner rolls back, all but one are victims of
		// a deadlock. A locking read before the insert would spare them under
		// READ COMMITTED; under REPEATABLE READ it locks gaps, and producers of
		// different keys deadlock, which happens far more often.
		ReserveKeys: `
INSERT INTO {prefix}outbox_dedup (account_id, dedup_key, created_time)
SELECT k.account_id, k.dedup_key, UTC_TIMESTAMP(6)
FROM JSON_TABLE(?1, '$[*]' COLUMNS (number FOR ORDINALITY, account_id VARCHAR(255) CHARACTER SET utf8mb4 PATH '$.account_id',
  dedup_key VARCHAR(255) CHARACTER SET utf8mb4 PATH '$.key')) AS k
ORDER BY k.number`,

		// It locks nothing, so it may not see what a snapshot is too old for.
		TakenKeys: `
SELECT k.number
FROM JSON_TABLE(?1, '$[*]' COLUMNS (number FOR ORDINALITY, account_id VARCHAR(255) CHARACTER SET utf8mb4 PATH '$.account_id',
  dedup_key VARCHAR(255) CHARACTER SET utf8mb4 PATH '$.key')) AS k
STRAIGHT_JOIN {prefix}outbox_dedup AS d ON d.account_id = CAST(k.account_id AS BINARY) AND d.dedup_key = CAST(k.dedup_key AS BINARY)
ORDER BY k.number`,

		// Nobody waits for a publisher, nor for another replica, so nobody
		// deadlocks with one.
		PurgeKeys: `
DELETE d
FROM (SELECT account_id, dedup_key FROM {prefix}outbox_dedup
  WHERE created_time < ?1 ORDER BY created_time LIMIT ?2 FOR UPDATE SKIP LOCKED) AS old
STRAIGHT_JOIN {prefix}outbox_dedup AS d ON d.account_id = old.account_id AND d.dedup_key = old.dedup_key`,

		sidecarStatements: mysqlSidecar,
		inspectStatements: mysqlInspect,
		statusStatements:  mysqlStatus,

		OutboxTable: `{prefix}outbox`,
		MarkerTable: `{prefix}outbox_idempotency`,

		NextEvent: `
SELECT CAST(created_time AS CHAR), id FROM {prefix}outbox
WHERE created_time >= ?1 AND (created_time > ?1 OR id > ?2) AND created_time < ?3
ORDER BY created_time, id LIMIT 1`,

		partitionStatements: partitionStatements{
			// Only ends are kept.
			ListPartitions: `
SELECT partition_name, CONCAT('` + "`', REPLACE(partition_name, '`', '``'), '`" + `'), NULL,
  CASE WHEN partition_description = 'MAXVALUE' THEN NULL ELSE CAST(TIMESTAMP(FROM_DAYS(partition_description)) AS CHAR) END, 0, 0
FROM information_schema.partitions
WHERE table_schema = DATABASE() AND table_name = ?1 AND partition_name IS NOT NULL`,

			LastStamp: `SELECT CAST(MAX(created_time) AS CHAR) FROM <table> PARTITION (<partition>)`,

			// Not everybody may ask, and MariaDB does not tell by default.
			TableHolders: `
SELECT CONCAT(owner_thread_id, '/', owner_event_id) FROM performance_schema.metadata_locks
WHERE object_type = 'TABLE' AND object_schema = DATABASE() AND object_name = ?1 AND lock_status = 'GRANTED'`,

			ExtendPartitions: `
ALTER TABLE <table> REORGANIZE PARTITION <partition> INTO (<ranges>PARTITION <partition> VALUES LESS THAN MAXVALUE)`,
			PartitionRange: "PARTITION <name> VALUES LESS THAN (TO_DAYS('<to>')), ",
			DropPartition:  `ALTER TABLE <table> DROP PARTITION <partition>`,
			LimitLockWait:  `SET SESSION lock_wait_timeout = ?1`,
			SessionID:      `SELECT CONNECTION_ID()`,
			// One's own sessions show without any privilege. That view fails on MySQL
			// while any of them runs a statement with a character of four bytes.
			WaitsForTable: `
SELECT 1 FROM /*!80022 performance_schema.processlist */ /*M! information_schema.processlist */ WHERE id = ?1 AND state = 'Waiting for table metadata lock'`,
			Interrupt: `KILL QUERY <session>`, // takes no arguments
		},

		// What a server does not know is left out, where asking for the variable
		// by its name would fail.
		DescribeServer: `
SHOW VARIABLES WHERE Variable_name IN ('version', 'version_comment', 'autocommit', 'log_bin', 'binlog_format', 'wsrep_on', 'wsrep_provider',
  'group_replication_group_name', 'group_replication_single_primary_mode', 'tidb_current_ts', 'memsql_version', 'transaction_isolation', 'tx_isolation',
  'character_set_client', 'character_set_connection', 'character_set_results', 'sql_select_limit', 'completion_type', 'sql_mode', 'sql_safe_updates',
  'sql_big_selects', 'max_join_size', 'transaction_read_only', 'tx_read_only', 'unique_checks', 'sql_log_bin', 'skip_replication', 'require_row_format')`,

		DescribeTables: `
SELECT table_name, CASE WHEN table_type = 'BASE TABLE' THEN 'engine' ELSE 'no table' END, COALESCE(engine, '')
FROM information_schema.tables
WHERE table_schema = DATABASE() AND table_name IN ('{prefix}outbox_schema', '{prefix}outbox', '{prefix}outbox_idempotency', '{prefix}outbox_dedup',
  '{prefix}outbox_cursors', '{prefix}outbox_subscriptions', '{prefix}outbox_audit', '{prefix}outbox_attempts', '{prefix}outbox_dead_letters', '{prefix}outbox_fence')
  AND (table_type <> 'BASE TABLE' OR engine <> 'InnoDB')`,

		// SYSDATE has to move on within a statement, or a stamp would be taken
		// before its fence is locked; and NOW has to be near it, which it is not where
		// the session's timestamp is set.
		ClockMoves: `
SELECT CASE WHEN ABS(UNIX_TIMESTAMP(SYSDATE(6)) - UNIX_TIMESTAMP(NOW(6))) < 60 THEN 1 ELSE 0 END
FROM (SELECT SLEEP(0.002) AS interrupted) AS s WHERE s.interrupted = 0 AND SYSDATE(6) <> NOW(6)`,

		SessionReadCommitted: `SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED`,

		FindSchema: `SELECT 1 FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = '{prefix}outbox_schema'`,

		SchemaVersions: `SELECT version FROM {prefix}outbox_schema`,

		// The session's lock, since DDL ends the transaction.
		LockMigrations: `SELECT GET_LOCK(CONCAT('{prefix}outbox_schema:', LEFT(SHA2(COALESCE(DATABASE(), ''), 256), 16)), 60)`,

		UnlockMigrations: `SELECT RELEASE_LOCK(CONCAT('{prefix}outbox_schema:', LEFT(SHA2(COALESCE(DATABASE(), ''), 256), 16)))`,
	},
}
