-- AppendRecord
INSERT INTO "app_outbox" (id, account_id, aggregate_type, aggregate_id, event_type, payload, created_time)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, max(CAST(unixepoch('subsec') * 1000000 AS INTEGER),
  1 + coalesce((SELECT max(created_time) FROM "app_outbox"), 0),
  1 + coalesce((SELECT max(high_water) FROM "app_outbox_cursors"), 0)))

-- AppendRecords
WITH stamp AS MATERIALIZED (
  SELECT max(CAST(unixepoch('subsec') * 1000000 AS INTEGER),
    1 + coalesce((SELECT max(created_time) FROM "app_outbox"), 0),
    1 + coalesce((SELECT max(high_water) FROM "app_outbox_cursors"), 0)) AS first
)
INSERT INTO "app_outbox" (id, account_id, aggregate_type, aggregate_id, event_type, payload, created_time)
SELECT r.value ->> 'id', r.value ->> 'account_id', r.value ->> 'aggregate_type', r.value ->> 'aggregate_id',
  r.value ->> 'event_type', coalesce(substr(?2, (r.value ->> 'start') + 1, r.value ->> 'size'), x''), stamp.first + r.key
FROM stamp, json_each(?1) AS r ORDER BY r.key

-- SafeMark
SELECT CAST(unixepoch('subsec') * 1000000 AS INTEGER),
  1 + max(coalesce((SELECT max(created_time) FROM "app_outbox"), 0),
          coalesce((SELECT max(high_water) FROM "app_outbox_cursors"), 0)), 1

-- ReadAfter
SELECT 1, created_time, id, account_id, aggregate_type, aggregate_id, event_type, payload
FROM "app_outbox" WHERE (created_time, id) > (?1, ?2) AND created_time < ?3
ORDER BY created_time, id LIMIT ?4

-- ReadWindow
SELECT 1, NULL, count(*), CAST(unixepoch('subsec') * 1000000 AS INTEGER), '', '', '', NULL
FROM "app_outbox" WHERE (created_time, id) > (?1, ?2) AND (created_time, id) <= (?3, ?4)
UNION ALL
SELECT * FROM (SELECT 1, created_time, id, '', '', '', '', NULL
  FROM "app_outbox" WHERE (created_time, id) > (?3, ?4) AND (created_time, id) <= (?5, ?6)
  ORDER BY created_time, id LIMIT ?8)
UNION ALL
SELECT * FROM (SELECT 1, created_time, id, account_id, aggregate_type, aggregate_id, event_type, payload
  FROM "app_outbox" WHERE (created_time, id) > (?5, ?6)
  ORDER BY created_time, id LIMIT ?7)

-- ReadKeys
SELECT 1, e.created_time, e.id, e.account_id, e.aggregate_type, e.aggregate_id, e.event_type, payload
FROM (
  SELECT created_time, id, sum(size) OVER (ORDER BY created_time, id) - size AS before
  FROM (
    SELECT o.created_time, o.id, octet_length(o.payload) AS size
    FROM json_each(?1) AS k CROSS JOIN "app_outbox" AS o
      ON o.created_time = k.value ->> 'micros' AND o.id = k.value ->> 'id'
  )
) AS s CROSS JOIN "app_outbox" AS e ON e.created_time = s.created_time AND e.id = s.id
WHERE s.before < ?2
ORDER BY s.created_time, s.id

-- ReadWindowHeads
SELECT 1, NULL, count(*), CAST(unixepoch('subsec') * 1000000 AS INTEGER), '', '', '', NULL
FROM "app_outbox" WHERE (created_time, id) > (?1, ?2) AND (created_time, id) <= (?3, ?4)
UNION ALL
SELECT * FROM (SELECT 1, created_time, id, '', '', '', '', NULL
  FROM "app_outbox" WHERE (created_time, id) > (?3, ?4) AND (created_time, id) <= (?5, ?6)
  ORDER BY created_time, id LIMIT ?8)
UNION ALL
SELECT * FROM (SELECT 1, created_time, id, account_id, aggregate_type, aggregate_id, event_type, NULL
  FROM "app_outbox" WHERE (created_time, id) > (?5, ?6)
  ORDER BY created_time, id LIMIT ?7)

-- ReadKeysHeads
SELECT 1, e.created_time, e.id, e.account_id, e.aggregate_type, e.aggregate_id, e.event_type, NULL
FROM (
  SELECT created_time, id, sum(size) OVER (ORDER BY created_time, id) - size AS before
  FROM (
    SELECT o.created_time, o.id, octet_length(o.payload) AS size
    FROM json_each(?1) AS k CROSS JOIN "app_outbox" AS o
      ON o.created_time = k.value ->> 'micros' AND o.id = k.value ->> 'id'
  )
) AS s CROSS JOIN "app_outbox" AS e ON e.created_time = s.created_time AND e.id = s.id
WHERE s.before < ?2
ORDER BY s.created_time, s.id

-- CountRows
SELECT created_time / ?3 * ?3 AS bucket, count(*), sum(created_time % ?3)
FROM "app_outbox" WHERE created_time >= ?1 AND created_time < ?2
GROUP BY bucket ORDER BY bucket

-- RecordMarker
INSERT INTO "app_outbox_idempotency" (created_time, event_id, handler) VALUES (?1, ?2, ?3)
ON CONFLICT (created_time, event_id, handler) DO NOTHING

-- RecordMarkers
INSERT INTO "app_outbox_idempotency" (created_time, event_id, handler)
SELECT k.value ->> 'micros', k.value ->> 'id', k.value ->> 'handler' FROM json_each(?1) AS k WHERE true
ON CONFLICT (created_time, event_id, handler) DO NOTHING
RETURNING created_time, event_id, handler

-- AppliedMarkers
SELECT k.key + 1
FROM json_each(?1) AS k CROSS JOIN "app_outbox_idempotency" AS m
  ON m.created_time = k.value ->> 'micros' AND m.event_id = k.value ->> 'id' AND m.handler = k.value ->> 'handler'

-- ReserveKeys
INSERT INTO "app_outbox_dedup" (account_id, dedup_key, created_time)
SELECT k.value ->> 'account_id', k.value ->> 'key', CAST(unixepoch('subsec') * 1000000 AS INTEGER)
FROM json_each(?1) AS k WHERE true ORDER BY k.key
ON CONFLICT (account_id, dedup_key) DO NOTHING
RETURNING account_id, dedup_key

-- ReleaseKeys
DELETE FROM "app_outbox_dedup" WHERE (account_id, dedup_key) IN (
  SELECT k.value ->> 'account_id', k.value ->> 'key' FROM json_each(?1) AS k)

-- PurgeKeys
DELETE FROM "app_outbox_dedup" WHERE (account_id, dedup_key) IN (
  SELECT account_id, dedup_key FROM "app_outbox_dedup" WHERE created_time < ?1 ORDER BY created_time LIMIT ?2)

-- LoadCursor
SELECT dispatcher, created_time, event_id, owner, token, expires_time, unclean, counted_from, bucket_events, bucket_offsets, bucket_offsets_events, ''
FROM "app_outbox_cursors" WHERE dispatcher = ?1

-- ListCursors
SELECT dispatcher, created_time, event_id, owner, token, expires_time, unclean, counted_from, bucket_events, bucket_offsets, bucket_offsets_events, ''
FROM "app_outbox_cursors" ORDER BY dispatcher

-- LockCursor
SELECT dispatcher, created_time, event_id, owner, token, expires_time, unclean, counted_from, bucket_events, bucket_offsets, bucket_offsets_events, ''
FROM "app_outbox_cursors" WHERE dispatcher = ?1

-- CreateCursor
INSERT INTO "app_outbox_cursors" (dispatcher, created_time, event_id, counted_from) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (dispatcher) DO NOTHING

-- AcquireLease
UPDATE "app_outbox_cursors" SET
  token = CASE WHEN owner = ?2 THEN token ELSE max(token,
    COALESCE((SELECT events FROM "app_outbox_audit" WHERE dispatcher = ?1 AND bucket_time = 253402300799999999), 0)) + 1 END,
  unclean = CASE WHEN owner = ?2 THEN unclean ELSE owner <> '' END,
  owner = ?2,
  expires_time = CAST(unixepoch('subsec') * 1000000 AS INTEGER) + ?3
WHERE dispatcher = ?1 AND (owner IN (?2, '') OR expires_time <= CAST(unixepoch('subsec') * 1000000 AS INTEGER))

-- ReleaseLease
UPDATE "app_outbox_cursors" SET owner = '', expires_time = NULL, unclean = 0
WHERE dispatcher = ?1 AND token = ?2 AND owner = ?3

-- SaveCursor
UPDATE "app_outbox_cursors" SET
  high_water = max(high_water, ?3),
  bucket_events = CASE WHEN (created_time, event_id) <= (?3, ?4) THEN ?5 ELSE bucket_events END,
  bucket_offsets = CASE WHEN (created_time, event_id) <= (?3, ?4) THEN ?6 ELSE bucket_offsets END,
  bucket_offsets_events = CASE WHEN (created_time, event_id) <= (?3, ?4) THEN ?7 ELSE bucket_offsets_events END,
  created_time = CASE WHEN (created_time, event_id) < (?3, ?4) THEN ?3 ELSE created_time END,
  event_id = CASE WHEN (created_time, event_id) < (?3, ?4) THEN ?4 ELSE event_id END
WHERE dispatcher = ?1 AND token = ?2 AND owner = ?8

-- RewindCursor
UPDATE "app_outbox_cursors" SET created_time = ?2, event_id = ?3, counted_from = ?4, bucket_events = 0, bucket_offsets = 0, bucket_offsets_events = 0, token = token + 1
WHERE dispatcher = ?1

-- ForgetCursor
DELETE FROM "app_outbox_cursors" WHERE dispatcher = ?1

-- KeepToken
INSERT INTO "app_outbox_audit" (dispatcher, bucket_time, events) VALUES (?1, ?2, ?3)
ON CONFLICT (dispatcher, bucket_time) DO UPDATE SET events = max(events, excluded.events)

-- HoldsToken
SELECT 1 FROM "app_outbox_cursors" WHERE dispatcher = ?1 AND token = ?2 AND owner = ?3

-- RegisterSubscriptions
INSERT INTO "app_outbox_subscriptions" (event_type, handler, dispatcher, start_time, start_id, behind_time, behind_id, served_time)
SELECT k.value ->> 'event_type', k.value ->> 'handler', ?2, ?3, ?4, ?3, ?4, CAST(unixepoch('subsec') * 1000000 AS INTEGER)
FROM json_each(?1) AS k WHERE true
ON CONFLICT (event_type, handler) DO UPDATE SET served_time = excluded.served_time

-- SettleVisible
INSERT INTO "app_outbox_idempotency" (created_time, event_id, handler)
SELECT e.created_time, e.id, k.value ->> 'handler'
FROM (SELECT created_time, id, event_type FROM "app_outbox"
  WHERE (created_time, id) > (?2, ?3) ORDER BY created_time, id LIMIT ?4) AS e
JOIN json_each(?1) AS k ON k.value ->> 'event_type' = e.event_type WHERE true
ON CONFLICT (created_time, event_id, handler) DO NOTHING

-- ListSubscriptions
SELECT event_type, handler, dispatcher, start_time, start_id, behind_time, behind_id
FROM "app_outbox_subscriptions" ORDER BY event_type, handler

-- ListUnserved
SELECT event_type, handler FROM "app_outbox_subscriptions"
WHERE dispatcher = ?1 AND served_time <= CAST(unixepoch('subsec') * 1000000 AS INTEGER) - ?2
ORDER BY event_type, handler

-- MoveSubscription
UPDATE "app_outbox_subscriptions" SET start_time = ?3, start_id = ?4, behind_time = ?5, behind_id = ?6
WHERE event_type = ?1 AND handler = ?2

-- ForgetSubscription
DELETE FROM "app_outbox_subscriptions" WHERE event_type = ?1 AND handler = ?2

-- SaveCounts
INSERT INTO "app_outbox_audit" (dispatcher, bucket_time, events, offsets, offsets_events)
SELECT c.dispatcher, k.value ->> 'micros', k.value ->> 'events', k.value ->> 'offsets', k.value ->> 'offsets_events'
FROM "app_outbox_cursors" AS c, json_each(?3) AS k WHERE c.dispatcher = ?1 AND c.token = ?2 AND c.owner = ?4
ON CONFLICT (dispatcher, bucket_time) DO UPDATE SET events = excluded.events, offsets = excluded.offsets, offsets_events = excluded.offsets_events

-- LoadCounts
SELECT bucket_time, events, offsets, offsets_events FROM "app_outbox_audit"
WHERE dispatcher = ?1 AND bucket_time >= ?2 AND bucket_time < ?3 ORDER BY bucket_time

-- ForgetCounts
DELETE FROM "app_outbox_audit" WHERE dispatcher = ?1 AND bucket_time < ?2

-- LoadAttempts
SELECT created_time, event_id, handler, attempts, last_error, next_time
FROM "app_outbox_attempts" WHERE dispatcher = ?1
ORDER BY created_time, event_id, handler LIMIT ?2

-- LoadAttempt
SELECT created_time, event_id, handler, attempts, last_error, next_time
FROM "app_outbox_attempts"
WHERE dispatcher = ?1 AND created_time = ?2 AND event_id = ?3 AND handler = ?4

-- RecordFailure
INSERT INTO "app_outbox_attempts" (dispatcher, created_time, event_id, handler, attempts, last_error, next_time)
SELECT dispatcher, ?3, ?4, ?5, ?6, ?7, CAST(unixepoch('subsec') * 1000000 AS INTEGER) + ?8
FROM "app_outbox_cursors" WHERE dispatcher = ?1 AND token = ?2 AND owner = ?9
ON CONFLICT (dispatcher, created_time, event_id, handler) DO UPDATE SET
  attempts = attempts + excluded.attempts, last_error = excluded.last_error, next_time = excluded.next_time

-- SettleAttempts
DELETE FROM "app_outbox_attempts" WHERE dispatcher = ?1 AND (created_time, event_id, handler) IN (
  SELECT k.value ->> 'micros', k.value ->> 'id', k.value ->> 'handler'
  FROM "app_outbox_cursors" AS c, json_each(?3) AS k WHERE c.dispatcher = ?1 AND c.token = ?2 AND c.owner = ?4)

-- ForgetAttempts
DELETE FROM "app_outbox_attempts" WHERE dispatcher = ?1 AND created_time < ?2

-- AddDeadLetter
INSERT INTO "app_outbox_dead_letters" (dispatcher, created_time, event_id, handler, account_id,
  aggregate_type, aggregate_id, event_type, payload, attempts, last_error, state, dead_time)
SELECT dispatcher, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, CAST(unixepoch('subsec') * 1000000 AS INTEGER)
FROM "app_outbox_cursors" WHERE dispatcher = ?1 AND token = ?2 AND owner = ?14
ON CONFLICT (created_time, event_id, handler) DO NOTHING

-- ListDeadLetters
SELECT created_time, event_id, handler, dispatcher, account_id, aggregate_type, aggregate_id, event_type, CASE WHEN ?12 THEN x'' ELSE payload END,
  attempts, last_error, state, dead_time
FROM "app_outbox_dead_letters"
WHERE ?1 = ''
  AND (?2 = '' OR dispatcher = ?2) AND (?3 = '' OR handler = ?3) AND (?4 = '' OR event_id = ?4)
  AND (?5 = '' OR event_type = ?5) AND (?6 = '' OR account_id = ?6)
  AND (?7 = '' OR aggregate_type = ?7) AND (?8 = '' OR aggregate_id = ?8)
  AND (created_time, event_id, handler) > (?9, ?10, ?11)
ORDER BY created_time, event_id, handler LIMIT ?13

-- ListDeadLettersIn
SELECT created_time, event_id, handler, dispatcher, account_id, aggregate_type, aggregate_id, event_type, CASE WHEN ?12 THEN x'' ELSE payload END,
  attempts, last_error, state, dead_time
FROM "app_outbox_dead_letters"
WHERE state = ?1
  AND (?2 = '' OR dispatcher = ?2) AND (?3 = '' OR handler = ?3) AND (?4 = '' OR event_id = ?4)
  AND (?5 = '' OR event_type = ?5) AND (?6 = '' OR account_id = ?6)
  AND (?7 = '' OR aggregate_type = ?7) AND (?8 = '' OR aggregate_id = ?8)
  AND (created_time, event_id, handler) > (?9, ?10, ?11)
ORDER BY created_time, event_id, handler LIMIT ?13

-- GetDeadLetter
SELECT created_time, event_id, handler, dispatcher, account_id, aggregate_type, aggregate_id, event_type, payload,
  attempts, last_error, state, dead_time
FROM "app_outbox_dead_letters"
WHERE created_time = ?1 AND event_id = ?2 AND handler = ?3

-- MoveDeadLetter
UPDATE "app_outbox_dead_letters" SET state = ?5, attempts = attempts + ?6, last_error = coalesce(nullif(?7, ''), last_error)
WHERE created_time = ?1 AND event_id = ?2 AND handler = ?3 AND state = ?4

-- PurgeDeadLetters
DELETE FROM "app_outbox_dead_letters" WHERE (created_time, event_id, handler) IN (
  SELECT created_time, event_id, handler FROM "app_outbox_dead_letters"
  WHERE state IN ('replayed', 'discarded') AND dead_time < ?1
  ORDER BY state, created_time, event_id, handler LIMIT ?2)

-- CountAfter
SELECT count(*) FROM (
  SELECT 1 FROM "app_outbox" WHERE (created_time, id) > (?1, ?2) ORDER BY created_time, id LIMIT ?3)

-- CountAttempts
SELECT count(*) FROM (SELECT 1 FROM "app_outbox_attempts" WHERE dispatcher = ?1 LIMIT ?2)

-- CountLetters
SELECT dispatcher, state, count(*) FROM (
  SELECT * FROM (SELECT dispatcher, state FROM "app_outbox_dead_letters" WHERE state = 'dead' LIMIT ?1)
  UNION ALL SELECT * FROM (SELECT dispatcher, state FROM "app_outbox_dead_letters" WHERE state = 'requeued' LIMIT ?1)
  UNION ALL SELECT * FROM (SELECT dispatcher, state FROM "app_outbox_dead_letters" WHERE state = 'replayed' LIMIT ?1)
  UNION ALL SELECT * FROM (SELECT dispatcher, state FROM "app_outbox_dead_letters" WHERE state = 'discarded' LIMIT ?1)
) GROUP BY dispatcher, state

-- ProbeSession
SELECT CAST(unixepoch('subsec') * 1000000 AS INTEGER), 1, (SELECT query_only = 0 FROM pragma_query_only), ?1

-- EventAhead
SELECT id, strftime('%Y-%m-%d %H:%M:%S', created_time / 1000000, 'unixepoch') FROM "app_outbox"
WHERE created_time > (unixepoch() + 3600) * 1000000 ORDER BY created_time DESC, id DESC LIMIT 1

-- OutboxTable
"app_outbox"

-- MarkerTable
"app_outbox_idempotency"

-- NextEvent
SELECT created_time, id FROM "app_outbox"
WHERE (created_time, id) > (?1, ?2) AND created_time < ?3
ORDER BY created_time, id LIMIT 1

-- ForgetEvents
DELETE FROM "app_outbox" WHERE (created_time, id) IN (
  SELECT created_time, id FROM "app_outbox" WHERE created_time < ?1 ORDER BY created_time, id LIMIT ?2)

-- ForgetMarkers
DELETE FROM "app_outbox_idempotency" WHERE (created_time, event_id, handler) IN (
  SELECT created_time, event_id, handler FROM "app_outbox_idempotency" WHERE created_time < ?1
  ORDER BY created_time, event_id, handler LIMIT ?2)

-- EndOfRange
SELECT number, created_time, id FROM (
  SELECT row_number() OVER (ORDER BY created_time, id) AS number, created_time, id FROM (
    SELECT created_time, id FROM "app_outbox"
    WHERE (created_time, id) >= (?1, ?2) AND (created_time, id) < (?3, ?4)
    ORDER BY created_time, id LIMIT ?5
  ) AS k
) AS numbered ORDER BY number DESC LIMIT 1

-- StartOfRange
SELECT number, created_time, id FROM (
  SELECT row_number() OVER (ORDER BY created_time DESC, id DESC) AS number, created_time, id FROM (
    SELECT created_time, id FROM "app_outbox"
    WHERE (created_time, id) >= (?1, ?2) AND (created_time, id) < (?3, ?4)
    ORDER BY created_time DESC, id DESC LIMIT ?5
  ) AS k
) AS numbered ORDER BY number DESC LIMIT 1

-- SelectRecords
SELECT created_time, id, account_id, aggregate_type, aggregate_id, event_type, CASE WHEN ?10 THEN x'' ELSE payload END
FROM "app_outbox"
WHERE (created_time, id) >= (?1, ?2) AND (created_time, id) < (?3, ?4)
  AND (?5 = '' OR id = ?5) AND (?6 = '' OR event_type = ?6) AND (?7 = '' OR account_id = ?7)
  AND (?8 = '' OR aggregate_type = ?8) AND (?9 = '' OR aggregate_id = ?9)
ORDER BY created_time, id LIMIT ?11

-- SelectRecordsBack
SELECT created_time, id, account_id, aggregate_type, aggregate_id, event_type, CASE WHEN ?10 THEN x'' ELSE payload END
FROM "app_outbox"
WHERE (created_time, id) >= (?1, ?2) AND (created_time, id) < (?3, ?4)
  AND (?5 = '' OR id = ?5) AND (?6 = '' OR event_type = ?6) AND (?7 = '' OR account_id = ?7)
  AND (?8 = '' OR aggregate_type = ?8) AND (?9 = '' OR aggregate_id = ?9)
ORDER BY created_time DESC, id DESC LIMIT ?11

-- AppliedHandlers
SELECT handler FROM "app_outbox_idempotency" WHERE created_time = ?1 AND event_id = ?2 ORDER BY handler

-- LoadFailures
SELECT created_time, event_id, handler, attempts, last_error, next_time
FROM "app_outbox_attempts" WHERE dispatcher = ?1 AND created_time = ?2 AND event_id = ?3 ORDER BY handler

-- DescribeServer
SELECT 'version', sqlite_version()
UNION ALL SELECT 'read_uncommitted', read_uncommitted FROM pragma_read_uncommitted
UNION ALL SELECT 'busy_timeout', timeout FROM pragma_busy_timeout
UNION ALL SELECT 'file', coalesce(file, '') FROM pragma_database_list WHERE name = 'main'

-- DescribeTables
SELECT name, CASE type WHEN 'view' THEN 'no table' ELSE 'temporary' END, ''
FROM (SELECT name, type FROM sqlite_temp_master UNION ALL SELECT name, type FROM sqlite_master WHERE type = 'view')
WHERE type IN ('table', 'view') AND lower(name) IN (lower('app_outbox_schema'), lower('app_outbox'), lower('app_outbox_idempotency'),
  lower('app_outbox_dedup'), lower('app_outbox_cursors'), lower('app_outbox_subscriptions'), lower('app_outbox_audit'),
  lower('app_outbox_attempts'), lower('app_outbox_dead_letters'))

-- FindSchema
SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'app_outbox_schema'

-- SchemaVersions
SELECT version FROM "app_outbox_schema"

