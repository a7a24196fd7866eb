-- AppendRecord
INSERT INTO app_outbox (id, account_id, aggregate_type, aggregate_id, event_type, payload, created_time)
SELECT ?1, ?2, ?3, ?4, ?5, ?6,
  UTC_TIMESTAMP(6) + INTERVAL (TIMESTAMPDIFF(MICROSECOND, NOW(6), SYSDATE(6)) + 86850000000) MOD 900000000 - 450000000 MICROSECOND
FROM app_outbox_fence WHERE slot = FLOOR(UNIX_TIMESTAMP(NOW(6)) * 20) MOD 64 LOCK IN SHARE MODE

-- AppendRecords
INSERT INTO app_outbox (id, account_id, aggregate_type, aggregate_id, event_type, payload, created_time)
SELECT r.id, r.account_id, r.aggregate_type, r.aggregate_id, r.event_type,
  SUBSTRING(CONVERT(?2 USING binary), r.start + 1, r.size),
  stamp.first + INTERVAL r.number - 1 MICROSECOND
FROM (
  SELECT UTC_TIMESTAMP(6) + INTERVAL (TIMESTAMPDIFF(MICROSECOND, NOW(6), SYSDATE(6)) + 86850000000) MOD 900000000 - 450000000 MICROSECOND AS first
  FROM app_outbox_fence WHERE slot = FLOOR(UNIX_TIMESTAMP(NOW(6)) * 20) MOD 64 LIMIT 1 LOCK IN SHARE MODE
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
)) AS r

-- SampleClock
SELECT CAST(UTC_TIMESTAMP(6) AS CHAR), FLOOR(UNIX_TIMESTAMP(NOW(6)) * 20) MOD 64, CASE WHEN @@global.read_only THEN 0 ELSE @@server_id + 1 END

-- SafeMark
SELECT slot FROM app_outbox_fence WHERE slot <> ?1 FOR UPDATE SKIP LOCKED

-- ReadAfter
SELECT CASE WHEN @@global.read_only THEN 0 ELSE @@server_id + 1 END, NULL, '', '', '', '', '', NULL
UNION ALL
(SELECT CASE WHEN @@global.read_only THEN 0 ELSE @@server_id + 1 END, CAST(created_time AS CHAR), id, account_id, aggregate_type, aggregate_id, event_type, payload
 FROM app_outbox
 WHERE created_time >= ?1 AND (created_time > ?1 OR id > ?2) AND created_time < ?3
 ORDER BY created_time, id LIMIT ?4)

-- ReadWindow
SELECT CASE WHEN @@global.read_only THEN 0 ELSE @@server_id + 1 END, NULL, CAST(
    (SELECT COUNT(*) FROM app_outbox WHERE created_time > ?1 AND created_time < ?3)
    + (SELECT COUNT(*) FROM app_outbox WHERE created_time = ?1 AND id > ?2 AND created_time < ?3)
    + (SELECT COUNT(*) FROM app_outbox WHERE created_time = ?3 AND id <= ?4 AND created_time > ?1)
  AS CHAR), CAST(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) AS CHAR), '', '', '', NULL
UNION ALL
(SELECT CASE WHEN @@global.read_only THEN 0 ELSE @@server_id + 1 END, CAST(created_time AS CHAR), id, '', '', '', '', NULL
 FROM app_outbox
 WHERE created_time >= ?3 AND (created_time > ?3 OR id > ?4) AND created_time <= ?5 AND (created_time < ?5 OR id <= ?6)
 ORDER BY created_time, id LIMIT ?8)
UNION ALL
(SELECT CASE WHEN @@global.read_only THEN 0 ELSE @@server_id + 1 END, CAST(created_time AS CHAR), id, account_id, aggregate_type, aggregate_id, event_type, payload
 FROM app_outbox
 WHERE created_time >= ?5 AND (created_time > ?5 OR id > ?6)
 ORDER BY created_time, id LIMIT ?7)

-- ReadKeys
SELECT CASE WHEN @@global.read_only THEN 0 ELSE @@server_id + 1 END, CAST(e.created_time AS CHAR), e.id, e.account_id, e.aggregate_type, e.aggregate_id, e.event_type, payload
FROM (
  SELECT created_time, id, SUM(size) OVER (ORDER BY created_time, id) - size AS before_it
  FROM (
    SELECT o.created_time, o.id, LENGTH(o.payload) AS size
    FROM JSON_TABLE(?1, '$[*]' COLUMNS (at DATETIME(6) PATH '$.at', id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin PATH '$.id')) AS k
    STRAIGHT_JOIN app_outbox AS o ON o.created_time = k.at AND o.id = k.id
    LIMIT 1000000
  ) AS o
) AS s
STRAIGHT_JOIN app_outbox AS e ON e.created_time = s.created_time AND e.id = s.id
WHERE s.before_it < ?2
ORDER BY s.created_time, s.id

-- ReadWindowHeads
SELECT CASE WHEN @@global.read_only THEN 0 ELSE @@server_id + 1 END, NULL, CAST(
    (SELECT COUNT(*) FROM app_outbox WHERE created_time > ?1 AND created_time < ?3)
    + (SELECT COUNT(*) FROM app_outbox WHERE created_time = ?1 AND id > ?2 AND created_time < ?3)
    + (SELECT COUNT(*) FROM app_outbox WHERE created_time = ?3 AND id <= ?4 AND created_time > ?1)
  AS CHAR), CAST(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) AS CHAR), '', '', '', NULL
UNION ALL
(SELECT CASE WHEN @@global.read_only THEN 0 ELSE @@server_id + 1 END, CAST(created_time AS CHAR), id, '', '', '', '', NULL
 FROM app_outbox
 WHERE created_time >= ?3 AND (created_time > ?3 OR id > ?4) AND created_time <= ?5 AND (created_time < ?5 OR id <= ?6)
 ORDER BY created_time, id LIMIT ?8)
UNION ALL
(SELECT CASE WHEN @@global.read_only THEN 0 ELSE @@server_id + 1 END, CAST(created_time AS CHAR), id, account_id, aggregate_type, aggregate_id, event_type, NULL
 FROM app_outbox
 WHERE created_time >= ?5 AND (created_time > ?5 OR id > ?6)
 ORDER BY created_time, id LIMIT ?7)

-- ReadKeysHeads
SELECT CASE WHEN @@global.read_only THEN 0 ELSE @@server_id + 1 END, CAST(e.created_time AS CHAR), e.id, e.account_id, e.aggregate_type, e.aggregate_id, e.event_type, NULL
FROM (
  SELECT created_time, id, SUM(size) OVER (ORDER BY created_time, id) - size AS before_it
  FROM (
    SELECT o.created_time, o.id, LENGTH(o.payload) AS size
    FROM JSON_TABLE(?1, '$[*]' COLUMNS (at DATETIME(6) PATH '$.at', id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin PATH '$.id')) AS k
    STRAIGHT_JOIN app_outbox AS o ON o.created_time = k.at AND o.id = k.id
    LIMIT 1000000
  ) AS o
) AS s
STRAIGHT_JOIN app_outbox AS e ON e.created_time = s.created_time AND e.id = s.id
WHERE s.before_it < ?2
ORDER BY s.created_time, s.id

-- CountRows
SELECT CAST(TIMESTAMPADD(SECOND, TIMESTAMPDIFF(SECOND, '1970-01-01', created_time) DIV (?3 DIV 1000000) * (?3 DIV 1000000), '1970-01-01') AS CHAR) AS bucket, COUNT(*),
  CAST(SUM((SECOND(created_time) * 1000000 + MICROSECOND(created_time)) MOD ?3) AS SIGNED)
FROM app_outbox WHERE created_time >= ?1 AND created_time < ?2
GROUP BY bucket ORDER BY bucket

-- RecordMarker
INSERT INTO app_outbox_idempotency (created_time, event_id, handler) VALUES (?1, ?2, ?3)

-- RecordMarkerDurably
INSERT INTO app_outbox_idempotency (created_time, event_id, handler)
SELECT ?1, ?2, ?3 FROM DUAL WHERE CONCAT(@@server_id, '@', @@hostname, ':', @@port) = ?4 AND @@innodb_flush_log_at_trx_commit NOT IN (0, 2) AND (@@sync_binlog = 1 OR NOT @@log_bin)

-- RecordMarkerInLife
INSERT INTO app_outbox_idempotency (created_time, event_id, handler)
SELECT ?1, ?2, ?3 FROM DUAL WHERE CONCAT(@@server_id, '@', @@hostname, ':', @@port, '/', (SELECT UNIX_TIMESTAMP() - CAST(VARIABLE_VALUE AS SIGNED)
    FROM /*!80000 performance_schema.global_status *//*M!100600 information_schema.GLOBAL_STATUS */ WHERE VARIABLE_NAME = 'Uptime')) = ?4

-- RecordMarkers
INSERT INTO app_outbox_idempotency (created_time, event_id, handler)
SELECT k.at, k.id, k.handler
FROM JSON_TABLE(?1, '$[*]' COLUMNS (at DATETIME(6) PATH '$.at',
  id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin PATH '$.id', handler VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$.handler')) AS k

-- RecordMarkersDurably
INSERT INTO app_outbox_idempotency (created_time, event_id, handler)
SELECT k.at, k.id, k.handler
FROM JSON_TABLE(?1, '$[*]' COLUMNS (at DATETIME(6) PATH '$.at',
  id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin PATH '$.id', handler VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$.handler')) AS k
WHERE CONCAT(@@server_id, '@', @@hostname, ':', @@port) = ?2 AND @@innodb_flush_log_at_trx_commit NOT IN (0, 2) AND (@@sync_binlog = 1 OR NOT @@log_bin)

-- RecordMarkersInLife
INSERT INTO app_outbox_idempotency (created_time, event_id, handler)
SELECT k.at, k.id, k.handler
FROM JSON_TABLE(?1, '$[*]' COLUMNS (at DATETIME(6) PATH '$.at',
  id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin PATH '$.id', handler VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$.handler')) AS k
WHERE CONCAT(@@server_id, '@', @@hostname, ':', @@port, '/', (SELECT UNIX_TIMESTAMP() - CAST(VARIABLE_VALUE AS SIGNED)
    FROM /*!80000 performance_schema.global_status *//*M!100600 information_schema.GLOBAL_STATUS */ WHERE VARIABLE_NAME = 'Uptime')) = ?2

-- AppliedMarkers
SELECT k.number
FROM JSON_TABLE(?1, '$[*]' COLUMNS (number FOR ORDINALITY, at DATETIME(6) PATH '$.at',
  id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin PATH '$.id', handler VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$.handler')) AS k
STRAIGHT_JOIN app_outbox_idempotency AS m ON m.created_time = k.at AND m.event_id = k.id AND m.handler = CAST(k.handler AS BINARY)

-- ReserveKeys
INSERT INTO app_outbox_dedup (account_id, dedup_key, created_time)
SELECT k.account_id, k.dedup_key, UTC_TIMESTAMP(6)
FROM JSON_TABLE(?1, '$[*]' COLUMNS (number FOR ORDINALITY, account_id VARCHAR(255) CHARACTER SET utf8mb4 PATH '$.account_id',
  dedup_key VARCHAR(255) CHARACTER SET utf8mb4 PATH '$.key')) AS k
ORDER BY k.number

-- TakenKeys
SELECT k.number
FROM JSON_TABLE(?1, '$[*]' COLUMNS (number FOR ORDINALITY, account_id VARCHAR(255) CHARACTER SET utf8mb4 PATH '$.account_id',
  dedup_key VARCHAR(255) CHARACTER SET utf8mb4 PATH '$.key')) AS k
STRAIGHT_JOIN app_outbox_dedup AS d ON d.account_id = CAST(k.account_id AS BINARY) AND d.dedup_key = CAST(k.dedup_key AS BINARY)
ORDER BY k.number

-- PurgeKeys
DELETE d
FROM (SELECT account_id, dedup_key FROM app_outbox_dedup
  WHERE created_time < ?1 ORDER BY created_time LIMIT ?2 FOR UPDATE SKIP LOCKED) AS old
STRAIGHT_JOIN app_outbox_dedup AS d ON d.account_id = old.account_id AND d.dedup_key = old.dedup_key

-- LoadCursor
SELECT dispatcher, CAST(created_time AS CHAR), event_id, owner, token, CAST(expires_time AS CHAR), unclean, CAST(counted_from AS CHAR), bucket_events, bucket_offsets, bucket_offsets_events,
  CONCAT(@@server_id, '@', @@hostname, ':', @@port, '/', (SELECT UNIX_TIMESTAMP() - CAST(VARIABLE_VALUE AS SIGNED)
    FROM /*!80000 performance_schema.global_status *//*M!100600 information_schema.GLOBAL_STATUS */ WHERE VARIABLE_NAME = 'Uptime'))
FROM app_outbox_cursors WHERE dispatcher = ?1

-- ListCursors
SELECT dispatcher, CAST(created_time AS CHAR), event_id, owner, token, CAST(expires_time AS CHAR), unclean, CAST(counted_from AS CHAR), bucket_events, bucket_offsets, bucket_offsets_events,
  CONCAT(@@server_id, '@', @@hostname, ':', @@port, '/', (SELECT UNIX_TIMESTAMP() - CAST(VARIABLE_VALUE AS SIGNED)
    FROM /*!80000 performance_schema.global_status *//*M!100600 information_schema.GLOBAL_STATUS */ WHERE VARIABLE_NAME = 'Uptime'))
FROM app_outbox_cursors ORDER BY dispatcher

-- LockCursor
SELECT dispatcher, CAST(created_time AS CHAR), event_id, owner, token, CAST(expires_time AS CHAR), unclean, CAST(counted_from AS CHAR), bucket_events, bucket_offsets, bucket_offsets_events,
  CONCAT(@@server_id, '@', @@hostname, ':', @@port, '/', (SELECT UNIX_TIMESTAMP() - CAST(VARIABLE_VALUE AS SIGNED)
    FROM /*!80000 performance_schema.global_status *//*M!100600 information_schema.GLOBAL_STATUS */ WHERE VARIABLE_NAME = 'Uptime'))
FROM app_outbox_cursors WHERE dispatcher = ?1 FOR UPDATE

-- CreateCursor
INSERT INTO app_outbox_cursors (dispatcher, created_time, event_id, counted_from) VALUES (?1, ?2, ?3, ?4)
ON DUPLICATE KEY UPDATE rev = rev

-- AcquireLease
UPDATE app_outbox_cursors SET
  token = CASE WHEN owner = ?2 THEN token ELSE GREATEST(token,
    COALESCE((SELECT events FROM app_outbox_audit WHERE dispatcher = ?1 AND bucket_time = '9999-12-31 23:59:59.999999'), 0)) + 1 END,
  unclean = CASE WHEN owner = ?2 THEN unclean ELSE owner <> '' END,
  owner = ?2,
  expires_time = UTC_TIMESTAMP(6) + INTERVAL ?3 MICROSECOND,
  rev = rev + 1
WHERE dispatcher = ?1 AND (owner IN (?2, '') OR expires_time <= UTC_TIMESTAMP(6))

-- ReleaseLease
UPDATE app_outbox_cursors SET owner = '', expires_time = NULL, unclean = FALSE, rev = rev + 1
WHERE dispatcher = ?1 AND token = ?2 AND owner = ?3 AND CONCAT(@@server_id, '@', @@hostname, ':', @@port, '/', (SELECT UNIX_TIMESTAMP() - CAST(VARIABLE_VALUE AS SIGNED)
    FROM /*!80000 performance_schema.global_status *//*M!100600 information_schema.GLOBAL_STATUS */ WHERE VARIABLE_NAME = 'Uptime')) = ?4

-- SaveCursor
UPDATE app_outbox_cursors SET
  bucket_events = CASE WHEN created_time < ?3 OR created_time = ?3 AND event_id <= ?4 THEN ?5 ELSE bucket_events END,
  bucket_offsets = CASE WHEN created_time < ?3 OR created_time = ?3 AND event_id <= ?4 THEN ?6 ELSE bucket_offsets END,
  bucket_offsets_events = CASE WHEN created_time < ?3 OR created_time = ?3 AND event_id <= ?4 THEN ?7 ELSE bucket_offsets_events END,
  event_id = CASE WHEN created_time < ?3 OR created_time = ?3 AND event_id < ?4 THEN ?4 ELSE event_id END,
  created_time = GREATEST(created_time, ?3),
  rev = rev + 1
WHERE dispatcher = ?1 AND token = ?2 AND owner = ?8 AND CONCAT(@@server_id, '@', @@hostname, ':', @@port, '/', (SELECT UNIX_TIMESTAMP() - CAST(VARIABLE_VALUE AS SIGNED)
    FROM /*!80000 performance_schema.global_status *//*M!100600 information_schema.GLOBAL_STATUS */ WHERE VARIABLE_NAME = 'Uptime')) = ?9

-- RewindCursor
UPDATE app_outbox_cursors SET created_time = ?2, event_id = ?3, counted_from = ?4, bucket_events = 0, bucket_offsets = 0, bucket_offsets_events = 0, token = token + 1, rev = rev + 1
WHERE dispatcher = ?1

-- ForgetCursor
DELETE FROM app_outbox_cursors WHERE dispatcher = ?1

-- KeepToken
INSERT INTO app_outbox_audit (dispatcher, bucket_time, events) VALUES (?1, ?2, ?3)
ON DUPLICATE KEY UPDATE events = GREATEST(events, VALUES(events))

-- HoldsToken
SELECT 1 FROM app_outbox_cursors WHERE dispatcher = ?1 AND token = ?2 AND owner = ?3 AND CONCAT(@@server_id, '@', @@hostname, ':', @@port, '/', (SELECT UNIX_TIMESTAMP() - CAST(VARIABLE_VALUE AS SIGNED)
    FROM /*!80000 performance_schema.global_status *//*M!100600 information_schema.GLOBAL_STATUS */ WHERE VARIABLE_NAME = 'Uptime')) = ?4

-- RegisterSubscriptions
INSERT INTO app_outbox_subscriptions (event_type, handler, dispatcher, start_time, start_id, behind_time, behind_id, served_time)
SELECT k.event_type, k.handler, ?2, ?3, ?4, ?3, ?4, UTC_TIMESTAMP(6)
FROM JSON_TABLE(?1, '$[*]' COLUMNS (event_type VARCHAR(255) CHARACTER SET utf8mb4 PATH '$.event_type',
  handler VARCHAR(128) CHARACTER SET utf8mb4 PATH '$.handler')) AS k
ON DUPLICATE KEY UPDATE served_time = VALUES(served_time)

-- SettleVisible
INSERT INTO app_outbox_idempotency (created_time, event_id, handler)
SELECT e.created_time, e.id, k.handler
FROM (SELECT created_time, id, event_type FROM app_outbox
  WHERE created_time >= ?2 AND (created_time > ?2 OR id > ?3)
  ORDER BY created_time, id LIMIT ?4) AS e
JOIN JSON_TABLE(?1, '$[*]' COLUMNS (event_type VARCHAR(255) CHARACTER SET utf8mb4 PATH '$.event_type',
  handler VARCHAR(128) CHARACTER SET utf8mb4 PATH '$.handler')) AS k
  ON CAST(k.event_type AS BINARY) = CAST(e.event_type AS BINARY)
ON DUPLICATE KEY UPDATE handler = VALUES(handler)

-- ListSubscriptions
SELECT event_type, handler, dispatcher, CAST(start_time AS CHAR), start_id, CAST(behind_time AS CHAR), behind_id
FROM app_outbox_subscriptions ORDER BY event_type, handler

-- ListUnserved
SELECT event_type, handler FROM app_outbox_subscriptions
WHERE dispatcher = ?1 AND served_time <= UTC_TIMESTAMP(6) - INTERVAL ?2 MICROSECOND
ORDER BY event_type, handler

-- MoveSubscription
UPDATE app_outbox_subscriptions SET start_time = ?3, start_id = ?4, behind_time = ?5, behind_id = ?6
WHERE event_type = ?1 AND handler = ?2

-- ForgetSubscription
DELETE FROM app_outbox_subscriptions WHERE event_type = ?1 AND handler = ?2

-- SaveCounts
INSERT INTO app_outbox_audit (dispatcher, bucket_time, events, offsets, offsets_events)
SELECT c.dispatcher, k.at, k.events, k.offsets, k.offsets_events
FROM app_outbox_cursors AS c
JOIN JSON_TABLE(?3, '$[*]' COLUMNS (at DATETIME(6) PATH '$.at', events BIGINT PATH '$.events',
  offsets BIGINT PATH '$.offsets', offsets_events BIGINT PATH '$.offsets_events')) AS k
WHERE c.dispatcher = ?1 AND c.token = ?2 AND c.owner = ?4 AND CONCAT(@@server_id, '@', @@hostname, ':', @@port, '/', (SELECT UNIX_TIMESTAMP() - CAST(VARIABLE_VALUE AS SIGNED)
    FROM /*!80000 performance_schema.global_status *//*M!100600 information_schema.GLOBAL_STATUS */ WHERE VARIABLE_NAME = 'Uptime')) = ?5
ON DUPLICATE KEY UPDATE events = VALUES(events), offsets = VALUES(offsets), offsets_events = VALUES(offsets_events)

-- LoadCounts
SELECT CAST(bucket_time AS CHAR), events, offsets, offsets_events FROM app_outbox_audit
WHERE dispatcher = ?1 AND bucket_time >= ?2 AND bucket_time < ?3 ORDER BY bucket_time

-- ForgetCounts
DELETE FROM app_outbox_audit WHERE dispatcher = ?1 AND bucket_time < ?2

-- LoadAttempts
SELECT CAST(created_time AS CHAR), event_id, handler, attempts, last_error, CAST(next_time AS CHAR)
FROM app_outbox_attempts WHERE dispatcher = ?1
ORDER BY created_time, event_id, handler LIMIT ?2

-- LoadAttempt
SELECT CAST(created_time AS CHAR), event_id, handler, attempts, last_error, CAST(next_time AS CHAR)
FROM app_outbox_attempts
WHERE dispatcher = ?1 AND created_time = ?2 AND event_id = ?3 AND handler = ?4

-- RecordFailure
INSERT INTO app_outbox_attempts (dispatcher, created_time, event_id, handler, attempts, last_error, next_time)
SELECT dispatcher, ?3, ?4, ?5, ?6, ?7, UTC_TIMESTAMP(6) + INTERVAL ?8 MICROSECOND
FROM app_outbox_cursors WHERE dispatcher = ?1 AND token = ?2 AND owner = ?9 AND CONCAT(@@server_id, '@', @@hostname, ':', @@port, '/', (SELECT UNIX_TIMESTAMP() - CAST(VARIABLE_VALUE AS SIGNED)
    FROM /*!80000 performance_schema.global_status *//*M!100600 information_schema.GLOBAL_STATUS */ WHERE VARIABLE_NAME = 'Uptime')) = ?10
ON DUPLICATE KEY UPDATE attempts = attempts + VALUES(attempts), last_error = VALUES(last_error), next_time = VALUES(next_time)

-- SettleAttempts
DELETE a
FROM app_outbox_cursors AS c
JOIN JSON_TABLE(?3, '$[*]' COLUMNS (at DATETIME(6) PATH '$.at',
  id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin PATH '$.id', handler VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$.handler')) AS k
JOIN app_outbox_attempts AS a
  ON a.dispatcher = c.dispatcher AND a.created_time = k.at AND a.event_id = k.id AND a.handler = CAST(k.handler AS BINARY)
WHERE c.dispatcher = ?1 AND c.token = ?2 AND c.owner = ?4 AND CONCAT(@@server_id, '@', @@hostname, ':', @@port, '/', (SELECT UNIX_TIMESTAMP() - CAST(VARIABLE_VALUE AS SIGNED)
    FROM /*!80000 performance_schema.global_status *//*M!100600 information_schema.GLOBAL_STATUS */ WHERE VARIABLE_NAME = 'Uptime')) = ?5

-- ForgetAttempts
DELETE FROM app_outbox_attempts WHERE dispatcher = ?1 AND created_time < ?2

-- AddDeadLetter
INSERT INTO app_outbox_dead_letters (dispatcher, created_time, event_id, handler, account_id,
  aggregate_type, aggregate_id, event_type, payload, attempts, last_error, state, dead_time)
SELECT dispatcher, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, UTC_TIMESTAMP(6)
FROM app_outbox_cursors AS c WHERE c.dispatcher = ?1 AND c.token = ?2 AND c.owner = ?14 AND CONCAT(@@server_id, '@', @@hostname, ':', @@port, '/', (SELECT UNIX_TIMESTAMP() - CAST(VARIABLE_VALUE AS SIGNED)
    FROM /*!80000 performance_schema.global_status *//*M!100600 information_schema.GLOBAL_STATUS */ WHERE VARIABLE_NAME = 'Uptime')) = ?15
  AND NOT EXISTS (SELECT 1 FROM app_outbox_dead_letters AS l WHERE l.created_time = ?3 AND l.event_id = ?4 AND l.handler = ?5)

-- ListDeadLetters
SELECT CAST(created_time AS CHAR), event_id, handler, dispatcher, account_id, aggregate_type, aggregate_id, event_type, CASE WHEN ?12 THEN '' ELSE payload END,
  attempts, last_error, state, CAST(dead_time AS CHAR)
FROM app_outbox_dead_letters
WHERE LENGTH(?1) = 0
  AND (LENGTH(?2) = 0 OR dispatcher = ?2) AND (LENGTH(?3) = 0 OR handler = ?3) AND (LENGTH(?4) = 0 OR CAST(event_id AS BINARY) = ?4)
  AND (LENGTH(?5) = 0 OR CAST(event_type AS BINARY) = ?5) AND (LENGTH(?6) = 0 OR CAST(account_id AS BINARY) = ?6)
  AND (LENGTH(?7) = 0 OR CAST(aggregate_type AS BINARY) = ?7) AND (LENGTH(?8) = 0 OR CAST(aggregate_id AS BINARY) = ?8)
  AND created_time >= ?9 AND (created_time > ?9 OR event_id > ?10 OR event_id = ?10 AND handler > ?11)
ORDER BY created_time, event_id, handler LIMIT ?13

-- ListDeadLettersIn
SELECT CAST(created_time AS CHAR), event_id, handler, dispatcher, account_id, aggregate_type, aggregate_id, event_type, CASE WHEN ?12 THEN '' ELSE payload END,
  attempts, last_error, state, CAST(dead_time AS CHAR)
FROM app_outbox_dead_letters
WHERE state = ?1
  AND (LENGTH(?2) = 0 OR dispatcher = ?2) AND (LENGTH(?3) = 0 OR handler = ?3) AND (LENGTH(?4) = 0 OR CAST(event_id AS BINARY) = ?4)
  AND (LENGTH(?5) = 0 OR CAST(event_type AS BINARY) = ?5) AND (LENGTH(?6) = 0 OR CAST(account_id AS BINARY) = ?6)
  AND (LENGTH(?7) = 0 OR CAST(aggregate_type AS BINARY) = ?7) AND (LENGTH(?8) = 0 OR CAST(aggregate_id AS BINARY) = ?8)
  AND created_time >= ?9 AND (created_time > ?9 OR event_id > ?10 OR event_id = ?10 AND handler > ?11)
ORDER BY created_time, event_id, handler LIMIT ?13

-- GetDeadLetter
SELECT CAST(created_time AS CHAR), event_id, handler, dispatcher, account_id, aggregate_type, aggregate_id, event_type, payload,
  attempts, last_error, state, CAST(dead_time AS CHAR)
FROM app_outbox_dead_letters
WHERE created_time = ?1 AND event_id = ?2 AND handler = ?3

-- MoveDeadLetter
UPDATE app_outbox_dead_letters SET state = ?5, attempts = attempts + ?6, last_error = CASE WHEN LENGTH(?7) = 0 THEN last_error ELSE ?7 END
WHERE created_time = ?1 AND event_id = ?2 AND handler = ?3 AND state = ?4

-- PurgeDeadLetters
DELETE FROM app_outbox_dead_letters WHERE state IN ('replayed', 'discarded') AND dead_time < ?1
ORDER BY state, created_time, event_id, handler LIMIT ?2

-- CountAfter
SELECT COUNT(*) FROM (
  SELECT 1 FROM app_outbox WHERE created_time >= ?1 AND (created_time > ?1 OR id > ?2)
  ORDER BY created_time, id LIMIT ?3) AS n

-- CountAttempts
SELECT COUNT(*) FROM (SELECT 1 FROM app_outbox_attempts WHERE dispatcher = ?1 LIMIT ?2) AS n

-- CountLetters
SELECT dispatcher, state, COUNT(*) FROM (
  (SELECT dispatcher, state FROM app_outbox_dead_letters WHERE state = 'dead' LIMIT ?1)
  UNION ALL (SELECT dispatcher, state FROM app_outbox_dead_letters WHERE state = 'requeued' LIMIT ?1)
  UNION ALL (SELECT dispatcher, state FROM app_outbox_dead_letters WHERE state = 'replayed' LIMIT ?1)
  UNION ALL (SELECT dispatcher, state FROM app_outbox_dead_letters WHERE state = 'discarded' LIMIT ?1)
) AS l GROUP BY dispatcher, state

-- Producers
SELECT CAST(UTC_TIMESTAMP(6) - INTERVAL MAX(x.timer_wait) DIV 1000000 MICROSECOND AS CHAR), COALESCE(t.processlist_id, 0),
  COALESCE(CONCAT(t.processlist_user, '@', t.processlist_host), ''), COALESCE(t.processlist_command, ''), ''
FROM performance_schema.data_locks AS l
JOIN performance_schema.threads AS t ON t.thread_id = l.thread_id
LEFT JOIN performance_schema.events_transactions_current AS x ON x.thread_id = l.thread_id AND x.state = 'ACTIVE'
WHERE l.object_schema = DATABASE() AND l.object_name = 'app_outbox_fence' AND l.lock_type = 'RECORD' AND l.lock_mode LIKE 'S%'
GROUP BY t.thread_id, t.processlist_id, t.processlist_user, t.processlist_host, t.processlist_command
ORDER BY 1, 2 LIMIT ?1

-- Suspects
SELECT CAST(CONVERT_TZ(t.trx_started, 'SYSTEM', '+00:00') AS CHAR), t.trx_mysql_thread_id, CONCAT(p.user, '@', p.host), p.command, ''
FROM information_schema.innodb_trx AS t JOIN information_schema.processlist AS p ON p.id = t.trx_mysql_thread_id
WHERE p.db = DATABASE() AND p.id <> CONNECTION_ID() AND t.trx_rows_modified > 0 AND t.trx_rows_locked > 0
ORDER BY 1, 2 LIMIT ?1

-- ProbeSession
SELECT CAST(UTC_TIMESTAMP(6) AS CHAR), NOT @@global.read_only, TRUE, CAST(CAST(?1 AS DATETIME(6)) AS CHAR)

-- EventAhead
SELECT id, CAST(created_time AS CHAR) FROM app_outbox
WHERE created_time > UTC_TIMESTAMP(6) + INTERVAL 1 HOUR ORDER BY created_time DESC, id DESC LIMIT 1

-- LackedByRetention
SELECT t.name, n.privilege
FROM (SELECT 'app_outbox' AS name UNION ALL SELECT 'app_outbox_idempotency') AS t
CROSS JOIN (SELECT 'ALTER' AS privilege UNION ALL SELECT 'CREATE' UNION ALL SELECT 'DROP' UNION ALL SELECT 'INSERT') AS n
CROSS JOIN (SELECT CONCAT('''', REPLACE(CURRENT_USER(), '@', '''@'''), '''') AS name) AS u
WHERE NOT EXISTS (SELECT 1 FROM information_schema.enabled_roles WHERE role_name IS NOT NULL AND role_name <> 'NONE')
  AND NOT EXISTS (SELECT 1 FROM information_schema.user_privileges AS g WHERE g.grantee = u.name AND g.privilege_type = n.privilege)
  AND NOT EXISTS (SELECT 1 FROM information_schema.schema_privileges AS g
    WHERE g.grantee = u.name AND g.privilege_type = n.privilege AND DATABASE() LIKE g.table_schema)
  AND NOT EXISTS (SELECT 1 FROM information_schema.table_privileges AS g
    WHERE g.grantee = u.name AND g.privilege_type = n.privilege AND g.table_schema = DATABASE() AND g.table_name = t.name)
ORDER BY 1, 2

-- OutboxTable
app_outbox

-- MarkerTable
app_outbox_idempotency

-- NextEvent
SELECT CAST(created_time AS CHAR), id FROM app_outbox
WHERE created_time >= ?1 AND (created_time > ?1 OR id > ?2) AND created_time < ?3
ORDER BY created_time, id LIMIT 1

-- ListPartitions
SELECT partition_name, CONCAT('`', REPLACE(partition_name, '`', '``'), '`'), NULL,
  CASE WHEN partition_description = 'MAXVALUE' THEN NULL ELSE CAST(TIMESTAMP(FROM_DAYS(partition_description)) AS CHAR) END, 0, 0
FROM information_schema.partitions
WHERE table_schema = DATABASE() AND table_name = ?1 AND partition_name IS NOT NULL

-- LastStamp
SELECT CAST(MAX(created_time) AS CHAR) FROM <table> PARTITION (<partition>)

-- TableHolders
SELECT CONCAT(owner_thread_id, '/', owner_event_id) FROM performance_schema.metadata_locks
WHERE object_type = 'TABLE' AND object_schema = DATABASE() AND object_name = ?1 AND lock_status = 'GRANTED'

-- ExtendPartitions
ALTER TABLE <table> REORGANIZE PARTITION <partition> INTO (<ranges>PARTITION <partition> VALUES LESS THAN MAXVALUE)

-- PartitionRange
PARTITION <name> VALUES LESS THAN (TO_DAYS('<to>')),

-- DropPartition
ALTER TABLE <table> DROP PARTITION <partition>

-- LimitLockWait
SET SESSION lock_wait_timeout = ?1

-- SessionID
SELECT CONNECTION_ID()

-- WaitsForTable
SELECT 1 FROM /*!80022 performance_schema.processlist */ /*M! information_schema.processlist */ WHERE id = ?1 AND state = 'Waiting for table metadata lock'

-- Interrupt
KILL QUERY <session>

-- EndOfRange
SELECT number, CAST(created_time AS CHAR), id FROM (
  SELECT ROW_NUMBER() OVER (ORDER BY created_time, id) AS number, created_time, id FROM (
    SELECT created_time, id FROM app_outbox
    WHERE created_time >= ?1 AND (created_time > ?1 OR id >= ?2) AND created_time <= ?3 AND (created_time < ?3 OR id < ?4)
    ORDER BY created_time, id LIMIT ?5
  ) AS k
) AS numbered ORDER BY number DESC LIMIT 1

-- StartOfRange
SELECT number, CAST(created_time AS CHAR), id FROM (
  SELECT ROW_NUMBER() OVER (ORDER BY created_time DESC, id DESC) AS number, created_time, id FROM (
    SELECT created_time, id FROM app_outbox
    WHERE created_time >= ?1 AND (created_time > ?1 OR id >= ?2) AND created_time <= ?3 AND (created_time < ?3 OR id < ?4)
    ORDER BY created_time DESC, id DESC LIMIT ?5
  ) AS k
) AS numbered ORDER BY number DESC LIMIT 1

-- SelectRecords
SELECT CAST(created_time AS CHAR), id, account_id, aggregate_type, aggregate_id, event_type, CASE WHEN ?10 THEN '' ELSE payload END
FROM app_outbox AS e
WHERE created_time >= ?1 AND (created_time > ?1 OR id >= ?2) AND created_time <= ?3 AND (created_time < ?3 OR id < ?4)
  AND (LENGTH(?5) = 0 OR CAST(id AS BINARY) = ?5) AND (LENGTH(?6) = 0 OR CAST(event_type AS BINARY) = ?6)
  AND (LENGTH(?7) = 0 OR CAST(account_id AS BINARY) = ?7) AND (LENGTH(?8) = 0 OR CAST(aggregate_type AS BINARY) = ?8)
  AND (LENGTH(?9) = 0 OR CAST(aggregate_id AS BINARY) = ?9)
ORDER BY e.created_time, e.id LIMIT ?11

-- SelectRecordsBack
SELECT CAST(created_time AS CHAR), id, account_id, aggregate_type, aggregate_id, event_type, CASE WHEN ?10 THEN '' ELSE payload END
FROM app_outbox AS e
WHERE created_time >= ?1 AND (created_time > ?1 OR id >= ?2) AND created_time <= ?3 AND (created_time < ?3 OR id < ?4)
  AND (LENGTH(?5) = 0 OR CAST(id AS BINARY) = ?5) AND (LENGTH(?6) = 0 OR CAST(event_type AS BINARY) = ?6)
  AND (LENGTH(?7) = 0 OR CAST(account_id AS BINARY) = ?7) AND (LENGTH(?8) = 0 OR CAST(aggregate_type AS BINARY) = ?8)
  AND (LENGTH(?9) = 0 OR CAST(aggregate_id AS BINARY) = ?9)
ORDER BY e.created_time DESC, e.id DESC LIMIT ?11

-- AppliedHandlers
SELECT handler FROM app_outbox_idempotency WHERE created_time = ?1 AND event_id = ?2 ORDER BY handler

-- LoadFailures
SELECT CAST(created_time AS CHAR), event_id, handler, attempts, last_error, CAST(next_time AS CHAR)
FROM app_outbox_attempts WHERE dispatcher = ?1 AND created_time = ?2 AND event_id = ?3 ORDER BY handler

-- DescribeServer
SHOW VARIABLES WHERE Variable_name IN ('version', 'version_comment', 'autocommit', 'log_bin', 'binlog_format', 'wsrep_on', 'wsrep_provider',
  'group_replication_group_name', 'group_replication_single_primary_mode', 'tidb_current_ts', 'memsql_version', 'transaction_isolation', 'tx_isolation',
  'character_set_client', 'character_set_connection', 'character_set_results', 'sql_select_limit', 'completion_type', 'sql_mode', 'sql_safe_updates',
  'sql_big_selects', 'max_join_size', 'transaction_read_only', 'tx_read_only', 'unique_checks', 'sql_log_bin', 'skip_replication', 'require_row_format')

-- DescribeTables
SELECT table_name, CASE WHEN table_type = 'BASE TABLE' THEN 'engine' ELSE 'no table' END, COALESCE(engine, '')
FROM information_schema.tables
WHERE table_schema = DATABASE() AND table_name IN ('app_outbox_schema', 'app_outbox', 'app_outbox_idempotency', 'app_outbox_dedup',
  'app_outbox_cursors', 'app_outbox_subscriptions', 'app_outbox_audit', 'app_outbox_attempts', 'app_outbox_dead_letters', 'app_outbox_fence')
  AND (table_type <> 'BASE TABLE' OR engine <> 'InnoDB')

-- SessionReadCommitted
SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED

-- ClockMoves
SELECT CASE WHEN ABS(UNIX_TIMESTAMP(SYSDATE(6)) - UNIX_TIMESTAMP(NOW(6))) < 60 THEN 1 ELSE 0 END
FROM (SELECT SLEEP(0.002) AS interrupted) AS s WHERE s.interrupted = 0 AND SYSDATE(6) <> NOW(6)

-- FindSchema
SELECT 1 FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = 'app_outbox_schema'

-- SchemaVersions
SELECT version FROM app_outbox_schema

-- LockMigrations
SELECT GET_LOCK(CONCAT('app_outbox_schema:', LEFT(SHA2(COALESCE(DATABASE(), ''), 256), 16)), 60)

-- UnlockMigrations
SELECT RELEASE_LOCK(CONCAT('app_outbox_schema:', LEFT(SHA2(COALESCE(DATABASE(), ''), 256), 16)))

