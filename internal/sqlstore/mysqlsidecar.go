package sqlstore

// mysqlSidecar is what MySQL and MariaDB run for the dispatchers' sidecar.
var mysqlSidecar = sidecarStatements{
	LoadCursor: `
SELECT dispatcher, CAST(created_time AS CHAR), event_id, owner, token, CAST(expires_time AS CHAR), unclean, CAST(counted_from AS CHAR), bucket_events, bucket_offsets, bucket_offsets_events,
  ` + mysqlLife + `
FROM {prefix}outbox_cursors WHERE dispatcher = ?1`,

	ListCursors: `
SELECT dispatcher, CAST(created_time AS CHAR), event_id, owner, token, CAST(expires_time AS CHAR), unclean, CAST(counted_from AS CHAR), bucket_events, bucket_offsets, bucket_offsets_events,
  ` + mysqlLife + `
FROM {prefix}outbox_cursors ORDER BY dispatcher`,

	// Whoever writes what belongs to a dispatcher, in more than one
	// statement, has locked its cursor first. What is read afterwards is of
	// a snapshot that is made then.
	LockCursor: `
SELECT dispatcher, CAST(created_time AS CHAR), event_id, owner, token, CAST(expires_time AS CHAR), unclean, CAST(counted_from AS CHAR), bucket_events, bucket_offsets, bucket_offsets_events,
  ` + mysqlLife + `
FROM {prefix}outbox_cursors WHERE dispatcher = ?1 FOR UPDATE`,

	CreateCursor: `
INSERT INTO {prefix}outbox_cursors (dispatcher, created_time, event_id, counted_from) VALUES (?1, ?2, ?3, ?4)
ON DUPLICATE KEY UPDATE rev = rev`,

	// Assignments take effect from left to right, so owner comes after what
	// looks at it. Each write raises rev: an UPDATE that changes nothing
	// affects no row.
	AcquireLease: `
UPDATE {prefix}outbox_cursors SET
  token = CASE WHEN owner = ?2 THEN token ELSE GREATEST(token,
    COALESCE((SELECT events FROM {prefix}outbox_audit WHERE dispatcher = ?1 AND bucket_time = '9999-12-31 23:59:59.999999'), 0)) + 1 END,
  unclean = CASE WHEN owner = ?2 THEN unclean ELSE owner <> '' END,
  owner = ?2,
  expires_time = UTC_TIMESTAMP(6) + INTERVAL ?3 MICROSECOND,
  rev = rev + 1
WHERE dispatcher = ?1 AND (owner IN (?2, '') OR expires_time <= UTC_TIMESTAMP(6))`,

	ReleaseLease: `
UPDATE {prefix}outbox_cursors SET owner = '', expires_time = NULL, unclean = FALSE, rev = rev + 1
WHERE dispatcher = ?1 AND token = ?2 AND owner = ?3 AND ` + mysqlLife + ` = ?4`,

	// The time comes last, since the others look at it.
	SaveCursor: `
UPDATE {prefix}outbox_cursors SET
  bucket_events = CASE WHEN created_time < ?3 OR created_time = ?3 AND event_id <= ?4 THEN ?5 ELSE bucket_events END,
  bucket_offsets = CASE WHEN created_time < ?3 OR created_time = ?3 AND event_id <= ?4 THEN ?6 ELSE bucket_offsets END,
  bucket_offsets_events = CASE WHEN created_time < ?3 OR created_time = ?3 AND event_id <= ?4 THEN ?7 ELSE bucket_offsets_events END,
  event_id = CASE WHEN created_time < ?3 OR created_time = ?3 AND event_id < ?4 THEN ?4 ELSE event_id END,
  created_time = GREATEST(created_time, ?3),
  rev = rev + 1
WHERE dispatcher = ?1 AND token = ?2 AND owner = ?8 AND ` + mysqlLife + ` = ?9`,

	RewindCursor: `
UPDATE {prefix}outbox_cursors SET created_time = ?2, event_id = ?3, counted_from = ?4, bucket_events = 0, bucket_offsets = 0, bucket_offsets_events = 0, token = token + 1, rev = rev + 1
WHERE dispatcher = ?1`,

	ForgetCursor: `DELETE FROM {prefix}outbox_cursors WHERE dispatcher = ?1`,

	// At the end of time, which no count is of and nothing that forgets counts
	// reaches, that of the release before neither.
	KeepToken: `
INSERT INTO {prefix}outbox_audit (dispatcher, bucket_time, events) VALUES (?1, ?2, ?3)
ON DUPLICATE KEY UPDATE events = GREATEST(events, VALUES(events))`,

	HoldsToken: `SELECT 1 FROM {prefix}outbox_cursors WHERE dispatcher = ?1 AND token = ?2 AND owner = ?3 AND ` + mysqlLife + ` = ?4`,

	RegisterSubscriptions: `
INSERT INTO {prefix}outbox_subscriptions (event_type, handler, dispatcher, start_time, start_id, behind_time, behind_id, served_time)
SELECT k.event_type, k.handler, ?2, ?3, ?4, ?3, ?4, UTC_TIMESTAMP(6)
FROM JSON_TABLE(?1, '$[*]' COLUMNS (event_type VARCHAR(255) CHARACTER SET utf8mb4 PATH '$.event_type',
  handler VARCHAR(128) CHARACTER SET utf8mb4 PATH '$.handler')) AS k
ON DUPLICATE KEY UPDATE served_time = VALUES(served_time)`,

	// It runs under READ COMMITTED, so that it locks no event and no gap that a
	// producer writes to. A type is compared as it is, where a collation would pad it.
	SettleVisible: `
INSERT INTO {prefix}outbox_idempotency (created_time, event_id, handler)
SELECT e.created_time, e.id, k.handler
FROM (SELECT created_time, id, event_type FROM {prefix}outbox
  WHERE created_time >= ?2 AND (created_time > ?2 OR id > ?3)
  ORDER BY created_time, id LIMIT ?4) AS e
JOIN JSON_TABLE(?1, '$[*]' COLUMNS (event_type VARCHAR(255) CHARACTER SET utf8mb4 PATH '$.event_type',
  handler VARCHAR(128) CHARACTER SET utf8mb4 PATH '$.handler')) AS k
  ON CAST(k.event_type AS BINARY) = CAST(e.event_type AS BINARY)
ON DUPLICATE KEY UPDATE handler = VALUES(handler)`,

	ListSubscriptions: `
SELECT event_type, handler, dispatcher, CAST(start_time AS CHAR), start_id, CAST(behind_time AS CHAR), behind_id
FROM {prefix}outbox_subscriptions ORDER BY event_type, handler`,

	ListUnserved: `
SELECT event_type, handler FROM {prefix}outbox_subscriptions
WHERE dispatcher = ?1 AND served_time <= UTC_TIMESTAMP(6) - INTERVAL ?2 MICROSECOND
ORDER BY event_type, handler`,

	// One row at a time, by its key, which locks no gap that another
	// dispatcher's subscriptions belong to.
	MoveSubscription: `
UPDATE {prefix}outbox_subscriptions SET start_time = ?3, start_id = ?4, behind_time = ?5, behind_id = ?6
WHERE event_type = ?1 AND handler = ?2`,

	ForgetSubscription: `DELETE FROM {prefix}outbox_subscriptions WHERE event_type = ?1 AND handler = ?2`,

	SaveCounts: `
INSERT INTO {prefix}outbox_audit (dispatcher, bucket_time, events, offsets, offsets_events)
SELECT c.dispatcher, k.at, k.events, k.offsets, k.offsets_events
FROM {prefix}outbox_cursors AS c
JOIN JSON_TABLE(?3, '$[*]' COLUMNS (at DATETIME(6) PATH '$.at', events BIGINT PATH '$.events',
  offsets BIGINT PATH '$.offsets', offsets_events BIGINT PATH '$.offsets_events')) AS k
WHERE c.dispatcher = ?1 AND c.token = ?2 AND c.owner = ?4 AND ` + mysqlLife + ` = ?5
ON DUPLICATE KEY UPDATE events = VALUES(events), offsets = VALUES(offsets), offsets_events = VALUES(offsets_events)`,

	LoadCounts: `
SELECT CAST(bucket_time AS CHAR), events, offsets, offsets_events FROM {prefix}outbox_audit
WHERE dispatcher = ?1 AND bucket_time >= ?2 AND bucket_time < ?3 ORDER BY bucket_time`,

	ForgetCounts: `DELETE FROM {prefix}outbox_audit WHERE dispatcher = ?1 AND bucket_time < ?2`,

	LoadAttempts: `
SELECT CAST(created_time AS CHAR), event_id, handler, attempts, last_error, CAST(next_time AS CHAR)
FROM {prefix}outbox_attempts WHERE dispatcher = ?1
ORDER BY created_time, event_id, handler LIMIT ?2`,

	LoadAttempt: `
SELECT CAST(created_time AS CHAR), event_id, handler, attempts, last_error, CAST(next_time AS CHAR)
FROM {prefix}outbox_attempts
WHERE dispatcher = ?1 AND created_time = ?2 AND event_id = ?3 AND handler = ?4`,

	// Selecting from the cursor is the fence: no row for a stale token.
	RecordFailure: `
INSERT INTO {prefix}outbox_attempts (dispatcher, created_time, event_id, handler, attempts, last_error, next_time)
SELECT dispatcher, ?3, ?4, ?5, ?6, ?7, UTC_TIMESTAMP(6) + INTERVAL ?8 MICROSECOND
FROM {prefix}outbox_cursors WHERE dispatcher = ?1 AND token = ?2 AND owner = ?9 AND ` + mysqlLife + ` = ?10
ON DUPLICATE KEY UPDATE attempts = attempts + VALUES(attempts), last_error = VALUES(last_error), next_time = VALUES(next_time)`,

	SettleAttempts: `
DELETE a
FROM {prefix}outbox_cursors AS c
JOIN JSON_TABLE(?3, '$[*]' COLUMNS (at DATETIME(6) PATH '$.at',
  id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin PATH '$.id', handler VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$.handler')) AS k
JOIN {prefix}outbox_attempts AS a
  ON a.dispatcher = c.dispatcher AND a.created_time = k.at AND a.event_id = k.id AND a.handler = CAST(k.handler AS BINARY)
WHERE c.dispatcher = ?1 AND c.token = ?2 AND c.owner = ?4 AND ` + mysqlLife + ` = ?5`,

	ForgetAttempts: `DELETE FROM {prefix}outbox_attempts WHERE dispatcher = ?1 AND created_time < ?2`,

	AddDeadLetter: `
INSERT INTO {prefix}outbox_dead_letters (dispatcher, created_time, event_id, handler, account_id,
  aggregate_type, aggregate_id, event_type, payload, attempts, last_error, state, dead_time)
SELECT dispatcher, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, UTC_TIMESTAMP(6)
FROM {prefix}outbox_cursors AS c WHERE c.dispatcher = ?1 AND c.token = ?2 AND c.owner = ?14 AND ` + mysqlLife + ` = ?15
  AND NOT EXISTS (SELECT 1 FROM {prefix}outbox_dead_letters AS l WHERE l.created_time = ?3 AND l.event_id = ?4 AND l.handler = ?5)`,

	// A collation may take a name of blanks for an empty one, and pads what it
	// compares.
	ListDeadLetters: `
SELECT CAST(created_time AS CHAR), event_id, handler, dispatcher, account_id, aggregate_type, aggregate_id, event_type, CASE WHEN ?12 THEN '' ELSE payload END,
  attempts, last_error, state, CAST(dead_time AS CHAR)
FROM {prefix}outbox_dead_letters
WHERE LENGTH(?1) = 0
  AND (LENGTH(?2) = 0 OR dispatcher = ?2) AND (LENGTH(?3) = 0 OR handler = ?3) AND (LENGTH(?4) = 0 OR CAST(event_id AS BINARY) = ?4)
  AND (LENGTH(?5) = 0 OR CAST(event_type AS BINARY) = ?5) AND (LENGTH(?6) = 0 OR CAST(account_id AS BINARY) = ?6)
  AND (LENGTH(?7) = 0 OR CAST(aggregate_type AS BINARY) = ?7) AND (LENGTH(?8) = 0 OR CAST(aggregate_id AS BINARY) = ?8)
  AND created_time >= ?9 AND (created_time > ?9 OR event_id > ?10 OR event_id = ?10 AND handler > ?11)
ORDER BY created_time, event_id, handler LIMIT ?13`,

	// The same for those in a state, which have an index: the few that are requeued
	// are looked for again and again.
	ListDeadLettersIn: `
SELECT CAST(created_time AS CHAR), event_id, handler, dispatcher, account_id, aggregate_type, aggregate_id, event_type, CASE WHEN ?12 THEN '' ELSE payload END,
  attempts, last_error, state, CAST(dead_time AS CHAR)
FROM {prefix}outbox_dead_letters
WHERE state = ?1
  AND (LENGTH(?2) = 0 OR dispatcher = ?2) AND (LENGTH(?3) = 0 OR handler = ?3) AND (LENGTH(?4) = 0 OR CAST(event_id AS BINARY) = ?4)
  AND (LENGTH(?5) = 0 OR CAST(event_type AS BINARY) = ?5) AND (LENGTH(?6) = 0 OR CAST(account_id AS BINARY) = ?6)
  AND (LENGTH(?7) = 0 OR CAST(aggregate_type AS BINARY) = ?7) AND (LENGTH(?8) = 0 OR CAST(aggregate_id AS BINARY) = ?8)
  AND created_time >= ?9 AND (created_time > ?9 OR event_id > ?10 OR event_id = ?10 AND handler > ?11)
ORDER BY created_time, event_id, handler LIMIT ?13`,

	GetDeadLetter: `
SELECT CAST(created_time AS CHAR), event_id, handler, dispatcher, account_id, aggregate_type, aggregate_id, event_type, payload,
  attempts, last_error, state, CAST(dead_time AS CHAR)
FROM {prefix}outbox_dead_letters
WHERE created_time = ?1 AND event_id = ?2 AND handler = ?3`,

	MoveDeadLetter: `
UPDATE {prefix}outbox_dead_letters SET state = ?5, attempts = attempts + ?6, last_error = CASE WHEN LENGTH(?7) = 0 THEN last_error ELSE ?7 END
WHERE created_time = ?1 AND event_id = ?2 AND handler = ?3 AND state = ?4`,

	// In the order of the index, so that two of them lock rows in the same order.
	PurgeDeadLetters: `
DELETE FROM {prefix}outbox_dead_letters WHERE state IN ('replayed', 'discarded') AND dead_time < ?1
ORDER BY state, created_time, event_id, handler LIMIT ?2`,
}
