-- AppendRecord
INSERT INTO "iam"."app_outbox" (id, account_id, aggregate_type, aggregate_id, event_type, payload, created_time)
VALUES ($1::text, $2::text, $3::text, $4::text, $5::text, $6::bytea, CASE WHEN pg_advisory_xact_lock_shared(
    ('"iam"."app_outbox"'::regclass::oid::bigint & 524287) << 44 | floor(extract(epoch FROM now()) * 1000)::bigint
  )::text = '' THEN clock_timestamp() END)

-- AppendRecords
WITH fence AS MATERIALIZED (
  SELECT pg_advisory_xact_lock_shared(
    ('"iam"."app_outbox"'::regclass::oid::bigint & 524287) << 44 | floor(extract(epoch FROM now()) * 1000)::bigint)
), stamp AS MATERIALIZED (
  SELECT clock_timestamp() AS first FROM fence
)
INSERT INTO "iam"."app_outbox" (id, account_id, aggregate_type, aggregate_id, event_type, payload, created_time)
SELECT r.id, r.account_id, r.aggregate_type, r.aggregate_id, r.event_type,
  substring($2::bytea FROM r.start + 1 FOR r.size),
  stamp.first + (r.number - 1) * interval '1 microsecond'
FROM stamp, ROWS FROM (json_to_recordset($1::json) AS (
    id text, account_id text, aggregate_type text, aggregate_id text, event_type text, start integer, size integer)
  ) WITH ORDINALITY AS r(id, account_id, aggregate_type, aggregate_id, event_type, start, size, number)

-- SafeMark
WITH holder AS MATERIALIZED (
  SELECT min(k.ms) AS ms, min(l.transactionid::text::bigint) FILTER (WHERE l.mode = 'ExclusiveLock' AND l.granted) AS xid
  FROM pg_locks l
  LEFT JOIN LATERAL (SELECT (l.classid::bigint & 4095) << 32 | l.objid::bigint) AS k(ms)
    ON l.locktype = 'advisory' AND l.objsubid = 1 AND l.mode = 'ShareLock'
    AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND l.classid::bigint >> 12 = '"iam"."app_outbox"'::regclass::oid::bigint & 524287
    AND k.ms BETWEEN 1577836800000 AND extract(epoch FROM statement_timestamp()) * 1000
  WHERE l.locktype IN ('advisory', 'transactionid')
  GROUP BY l.virtualtransaction
), producer AS (
  SELECT ms, xid, xid IS NOT NULL AND ms < extract(epoch FROM statement_timestamp()) * 1000 - 250 AS holds_out
  FROM holder WHERE ms IS NOT NULL
)
SELECT statement_timestamp(),
  least(statement_timestamp(), timestamptz 'epoch' + min(ms) * interval '1 millisecond'),
  CASE WHEN pg_is_in_recovery() THEN 0
    ELSE (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint END,
  least(statement_timestamp(), timestamptz 'epoch' + min(ms) FILTER (WHERE NOT holds_out) * interval '1 millisecond'),
  coalesce(string_agg((latest + ((xid - latest + 2147483648) & 4294967295) - 2147483648)::text, ',') FILTER (WHERE holds_out), '')
FROM (SELECT CASE WHEN pg_is_in_recovery() THEN 0 ELSE pg_snapshot_xmax(pg_current_snapshot())::text::bigint END) AS s(latest)
LEFT JOIN producer ON true

-- ReadAfter
SELECT s.server, e.created_time, coalesce(e.id, ''), coalesce(e.account_id, ''), coalesce(e.aggregate_type, ''),
  coalesce(e.aggregate_id, ''), coalesce(e.event_type, ''), e.payload
FROM (SELECT CASE WHEN pg_is_in_recovery() THEN 0 WHEN (SELECT row_security_active('"iam"."app_outbox"')) THEN -2
    ELSE (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint END AS server) AS s
LEFT JOIN LATERAL (
  SELECT * FROM "iam"."app_outbox"
  WHERE created_time >= $1 AND (created_time, id) > ($1, $2) AND created_time < $3
  ORDER BY created_time, id LIMIT $4
) AS e ON true

-- ReadWindow
SELECT s.server, nullif(e.created_time, '-infinity'), e.id, e.account_id, e.aggregate_type, e.aggregate_id, e.event_type, e.payload
FROM (SELECT CASE WHEN pg_is_in_recovery() THEN 0 WHEN (SELECT row_security_active('"iam"."app_outbox"')) THEN -2
    ELSE (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint END AS server) AS s
CROSS JOIN LATERAL (
  (SELECT n.rows::text COLLATE "C" AS id, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint::text AS account_id, '' AS aggregate_type, '' AS aggregate_id, start.held AS event_type, NULL::bytea AS payload,
     '-infinity'::timestamptz AS created_time
   FROM (
     SELECT CASE WHEN h.out THEN 'held' ELSE '' END, CASE WHEN h.out THEN $9::timestamptz ELSE $1::timestamptz END, CASE WHEN h.out THEN '' ELSE $2::text END
     FROM (SELECT $9::timestamptz > $1::timestamptz AND bool_and(NOT pg_visible_in_snapshot(t.id::xid8, pg_current_snapshot()))
       FROM unnest(string_to_array($10::text, ',')) AS t(id)) AS h(out)
   ) AS start(held, created_time, id)
   CROSS JOIN LATERAL (
     SELECT count(*) FROM "iam"."app_outbox" AS o
     WHERE o.created_time >= start.created_time AND (o.created_time, o.id) > (start.created_time, start.id)
       AND o.created_time <= $3 AND (o.created_time, o.id) <= ($3, $4)
   ) AS n(rows))
  UNION ALL
  (SELECT id, '', '', '', '', NULL, created_time
   FROM "iam"."app_outbox"
   WHERE created_time >= $3 AND (created_time, id) > ($3, $4) AND created_time <= $5 AND (created_time, id) <= ($5, $6)
   ORDER BY created_time, id LIMIT $8)
  UNION ALL
  (SELECT id, account_id, aggregate_type, aggregate_id, event_type, payload, created_time
   FROM "iam"."app_outbox"
   WHERE created_time >= $5 AND (created_time, id) > ($5, $6)
   ORDER BY created_time, id LIMIT $7)
) AS e
ORDER BY e.created_time, e.id

-- ReadKeys
SELECT CASE WHEN pg_is_in_recovery() THEN 0
    ELSE (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint END,
  e.created_time, e.id, e.account_id, e.aggregate_type, e.aggregate_id, e.event_type, payload
FROM (
  SELECT o.created_time, o.id, sum(o.size) OVER (ORDER BY o.created_time, o.id) - o.size AS before
  FROM json_to_recordset($1::json) AS k(micros bigint, id text)
  CROSS JOIN LATERAL (
    SELECT o.created_time, o.id, octet_length(o.payload) AS size FROM "iam"."app_outbox" AS o
    WHERE o.created_time = timestamptz 'epoch' + k.micros * interval '1 microsecond' AND o.id = k.id LIMIT 1
  ) AS o(created_time, id, size)
) AS s
CROSS JOIN LATERAL (
  SELECT * FROM "iam"."app_outbox" AS o WHERE o.created_time = s.created_time AND o.id = s.id LIMIT 1
) AS e
WHERE s.before < $2
ORDER BY s.created_time, s.id

-- ReadWindowHeads
SELECT s.server, nullif(e.created_time, '-infinity'), e.id, e.account_id, e.aggregate_type, e.aggregate_id, e.event_type, e.payload
FROM (SELECT CASE WHEN pg_is_in_recovery() THEN 0 WHEN (SELECT row_security_active('"iam"."app_outbox"')) THEN -2
    ELSE (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint END AS server) AS s
CROSS JOIN LATERAL (
  (SELECT n.rows::text COLLATE "C" AS id, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint::text AS account_id, '' AS aggregate_type, '' AS aggregate_id, start.held AS event_type, NULL::bytea AS payload,
     '-infinity'::timestamptz AS created_time
   FROM (
     SELECT CASE WHEN h.out THEN 'held' ELSE '' END, CASE WHEN h.out THEN $9::timestamptz ELSE $1::timestamptz END, CASE WHEN h.out THEN '' ELSE $2::text END
     FROM (SELECT $9::timestamptz > $1::timestamptz AND bool_and(NOT pg_visible_in_snapshot(t.id::xid8, pg_current_snapshot()))
       FROM unnest(string_to_array($10::text, ',')) AS t(id)) AS h(out)
   ) AS start(held, created_time, id)
   CROSS JOIN LATERAL (
     SELECT count(*) FROM "iam"."app_outbox" AS o
     WHERE o.created_time >= start.created_time AND (o.created_time, o.id) > (start.created_time, start.id)
       AND o.created_time <= $3 AND (o.created_time, o.id) <= ($3, $4)
   ) AS n(rows))
  UNION ALL
  (SELECT id, '', '', '', '', NULL, created_time
   FROM "iam"."app_outbox"
   WHERE created_time >= $3 AND (created_time, id) > ($3, $4) AND created_time <= $5 AND (created_time, id) <= ($5, $6)
   ORDER BY created_time, id LIMIT $8)
  UNION ALL
  (SELECT id, account_id, aggregate_type, aggregate_id, event_type, NULL, created_time
   FROM "iam"."app_outbox"
   WHERE created_time >= $5 AND (created_time, id) > ($5, $6)
   ORDER BY created_time, id LIMIT $7)
) AS e
ORDER BY e.created_time, e.id

-- ReadKeysHeads
SELECT CASE WHEN pg_is_in_recovery() THEN 0
    ELSE (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint END,
  e.created_time, e.id, e.account_id, e.aggregate_type, e.aggregate_id, e.event_type, NULL
FROM (
  SELECT o.created_time, o.id, sum(o.size) OVER (ORDER BY o.created_time, o.id) - o.size AS before
  FROM json_to_recordset($1::json) AS k(micros bigint, id text)
  CROSS JOIN LATERAL (
    SELECT o.created_time, o.id, octet_length(o.payload) AS size FROM "iam"."app_outbox" AS o
    WHERE o.created_time = timestamptz 'epoch' + k.micros * interval '1 microsecond' AND o.id = k.id LIMIT 1
  ) AS o(created_time, id, size)
) AS s
CROSS JOIN LATERAL (
  SELECT * FROM "iam"."app_outbox" AS o WHERE o.created_time = s.created_time AND o.id = s.id LIMIT 1
) AS e
WHERE s.before < $2
ORDER BY s.created_time, s.id

-- CountRows
SELECT date_bin($3::bigint * interval '1 microsecond', created_time, timestamptz 'epoch') AS bucket, count(*),
  sum((extract(epoch FROM created_time) * 1000000)::bigint % $3::bigint)::bigint
FROM "iam"."app_outbox" WHERE created_time >= $1 AND created_time < $2
GROUP BY bucket ORDER BY bucket

-- RecordMarker
INSERT INTO "iam"."app_outbox_idempotency" (created_time, event_id, handler)
VALUES ($1::timestamptz, $2::text, CASE WHEN (pg_postmaster_start_time() <> $5::timestamptz) IS NOT TRUE
    AND (pg_stat_get_bgwriter_stat_reset_time() <> $6::timestamptz) IS NOT TRUE
  THEN concat($3::text, CASE WHEN $4::text <> '' THEN left(set_config('idle_in_transaction_session_timeout', $4::text, true), 0) END, CASE WHEN $7::text <> '' THEN left(set_config('synchronous_commit', 'off', true), 0) END) END)
ON CONFLICT (created_time, event_id, handler) DO NOTHING

-- InsertMarker
INSERT INTO "iam"."app_outbox_idempotency" (created_time, event_id, handler)
VALUES ($1::timestamptz, $2::text, CASE WHEN (pg_postmaster_start_time() <> $5::timestamptz) IS NOT TRUE
    AND (pg_stat_get_bgwriter_stat_reset_time() <> $6::timestamptz) IS NOT TRUE
  THEN left(set_config('idle_in_transaction_session_timeout', $4::text, true), 0) || $3::text END)

-- InsertMarkerAsynchronously
INSERT INTO "iam"."app_outbox_idempotency" (created_time, event_id, handler)
VALUES ($1::timestamptz, $2::text, CASE WHEN (pg_postmaster_start_time() <> $5::timestamptz) IS NOT TRUE
    AND (pg_stat_get_bgwriter_stat_reset_time() <> $6::timestamptz) IS NOT TRUE
  THEN left(set_config('idle_in_transaction_session_timeout', $4::text, true), 0) || left(set_config('synchronous_commit', 'off', true), 0) || $3::text END)

-- RecordMarkers
WITH settings AS MATERIALIZED (SELECT CASE WHEN (pg_postmaster_start_time() <> $5::timestamptz) IS NOT TRUE
    AND (pg_stat_get_bgwriter_stat_reset_time() <> $6::timestamptz) IS NOT TRUE
  THEN concat(CASE WHEN $4::text <> '' THEN left(set_config('idle_in_transaction_session_timeout', $4::text, true), 0) END, CASE WHEN $7::text <> '' THEN left(set_config('synchronous_commit', 'off', true), 0) END) END AS nothing),
k AS MATERIALIZED (
  SELECT timestamptz 'epoch' + k.micros * interval '1 microsecond' AS created_time, k.id, k.handler
  FROM unnest($1::text::bigint[], $2::text::text[], $3::text::text[]) AS k(micros, id, handler)
), recorded AS (
  INSERT INTO "iam"."app_outbox_idempotency" (created_time, event_id, handler)
  SELECT k.created_time, k.id, k.handler || settings.nothing FROM settings, k
  ON CONFLICT (created_time, event_id, handler) DO NOTHING
  RETURNING created_time, event_id, handler
)
SELECT created_time, id, handler FROM k EXCEPT SELECT created_time, event_id, handler FROM recorded

-- AppliedMarkers
SELECT k.number
FROM ROWS FROM (json_to_recordset($1::json) AS (micros bigint, id text, handler text)) WITH ORDINALITY AS k(micros, id, handler, number)
CROSS JOIN LATERAL (
  SELECT FROM "iam"."app_outbox_idempotency"
  WHERE created_time = timestamptz 'epoch' + k.micros * interval '1 microsecond' AND event_id = k.id AND handler = k.handler LIMIT 1
) AS m

-- ReserveKeys
INSERT INTO "iam"."app_outbox_dedup" (account_id, dedup_key, created_time)
SELECT k.account_id, k.key, clock_timestamp()
FROM ROWS FROM (json_to_recordset($1::json) AS (account_id text, key text)) WITH ORDINALITY AS k(account_id, key, number)
ORDER BY k.number
ON CONFLICT (account_id, dedup_key) DO NOTHING
RETURNING account_id, dedup_key

-- ReleaseKeys
DELETE FROM "iam"."app_outbox_dedup" AS d
USING json_to_recordset($1::json) AS k(account_id text, key text)
WHERE d.account_id = k.account_id AND d.dedup_key = k.key

-- PurgeKeys
WITH old AS MATERIALIZED (
  SELECT account_id, dedup_key FROM "iam"."app_outbox_dedup"
  WHERE created_time < $1 ORDER BY created_time LIMIT $2 FOR UPDATE SKIP LOCKED
)
DELETE FROM "iam"."app_outbox_dedup" AS d USING old
WHERE d.account_id = old.account_id AND d.dedup_key = old.dedup_key

-- LoadCursor
SELECT dispatcher, created_time, event_id, owner, token, expires_time, unclean, counted_from, bucket_events, bucket_offsets, bucket_offsets_events,
  concat((extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint, '/',
    (extract(epoch FROM pg_stat_get_bgwriter_stat_reset_time()) * 1000000)::bigint)
FROM "iam"."app_outbox_cursors" WHERE dispatcher = $1

-- ListCursors
SELECT dispatcher, created_time, event_id, owner, token, expires_time, unclean, counted_from, bucket_events, bucket_offsets, bucket_offsets_events,
  concat((extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint, '/',
    (extract(epoch FROM pg_stat_get_bgwriter_stat_reset_time()) * 1000000)::bigint)
FROM "iam"."app_outbox_cursors" ORDER BY dispatcher

-- LockCursor
SELECT dispatcher, created_time, event_id, owner, token, expires_time, unclean, counted_from, bucket_events, bucket_offsets, bucket_offsets_events,
  concat((extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint, '/',
    (extract(epoch FROM pg_stat_get_bgwriter_stat_reset_time()) * 1000000)::bigint)
FROM "iam"."app_outbox_cursors"
WHERE dispatcher = $1 AND set_config('idle_in_transaction_session_timeout', '5s', true) IS NOT NULL FOR UPDATE

-- CreateCursor
INSERT INTO "iam"."app_outbox_cursors" (dispatcher, created_time, event_id, counted_from) VALUES ($1, $2, $3, $4)
ON CONFLICT (dispatcher) DO NOTHING

-- AcquireLease
UPDATE "iam"."app_outbox_cursors" SET
  token = CASE WHEN owner = $2 THEN token ELSE greatest(token,
    COALESCE((SELECT events FROM "iam"."app_outbox_audit" WHERE dispatcher = $1 AND bucket_time = '9999-12-31 23:59:59.999999+00'), 0)) + 1 END,
  unclean = CASE WHEN owner = $2 THEN unclean ELSE owner <> '' END,
  owner = $2,
  expires_time = clock_timestamp() + $3::bigint * interval '1 microsecond'
WHERE dispatcher = $1 AND (owner IN ($2, '') OR expires_time <= clock_timestamp())

-- ReleaseLease
UPDATE "iam"."app_outbox_cursors" SET owner = '', expires_time = NULL, unclean = false
WHERE dispatcher = $1 AND token = $2 AND owner = $3 AND concat((extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint, '/',
    (extract(epoch FROM pg_stat_get_bgwriter_stat_reset_time()) * 1000000)::bigint) = $4::text

-- SaveCursor
UPDATE "iam"."app_outbox_cursors" SET
  bucket_events = CASE WHEN (created_time, event_id) <= ($3, $4) THEN $5 ELSE bucket_events END,
  bucket_offsets = CASE WHEN (created_time, event_id) <= ($3, $4) THEN $6 ELSE bucket_offsets END,
  bucket_offsets_events = CASE WHEN (created_time, event_id) <= ($3, $4) THEN $7 ELSE bucket_offsets_events END,
  created_time = CASE WHEN (created_time, event_id) < ($3, $4) THEN $3 ELSE created_time END,
  event_id = CASE WHEN (created_time, event_id) < ($3, $4) THEN $4 ELSE event_id END
WHERE dispatcher = $1 AND token = $2 AND owner = $8 AND concat((extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint, '/',
    (extract(epoch FROM pg_stat_get_bgwriter_stat_reset_time()) * 1000000)::bigint) = $9::text
  AND set_config('idle_in_transaction_session_timeout', '5s', true) IS NOT NULL

-- RewindCursor
UPDATE "iam"."app_outbox_cursors" SET created_time = $2, event_id = $3, counted_from = $4, bucket_events = 0, bucket_offsets = 0, bucket_offsets_events = 0, token = token + 1
WHERE dispatcher = $1

-- ForgetCursor
DELETE FROM "iam"."app_outbox_cursors" WHERE dispatcher = $1

-- KeepToken
INSERT INTO "iam"."app_outbox_audit" AS a (dispatcher, bucket_time, events) VALUES ($1, $2, $3)
ON CONFLICT (dispatcher, bucket_time) DO UPDATE SET events = greatest(a.events, excluded.events)

-- HoldsToken
SELECT 1 FROM "iam"."app_outbox_cursors" WHERE dispatcher = $1 AND token = $2 AND owner = $3 AND concat((extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint, '/',
    (extract(epoch FROM pg_stat_get_bgwriter_stat_reset_time()) * 1000000)::bigint) = $4::text

-- RegisterSubscriptions
INSERT INTO "iam"."app_outbox_subscriptions" (event_type, handler, dispatcher, start_time, start_id, behind_time, behind_id, served_time)
SELECT k.event_type, k.handler, $2::text, $3::timestamptz, $4::text, $3, $4, clock_timestamp()
FROM json_to_recordset($1::json) AS k(event_type text, handler text)
ON CONFLICT (event_type, handler) DO UPDATE SET served_time = excluded.served_time

-- SettleVisible
INSERT INTO "iam"."app_outbox_idempotency" (created_time, event_id, handler)
SELECT e.created_time, e.id, k.handler
FROM (SELECT created_time, id, event_type FROM "iam"."app_outbox"
  WHERE created_time >= $2 AND (created_time, id) > ($2, $3)
  ORDER BY created_time, id LIMIT $4) AS e
JOIN json_to_recordset($1::json) AS k(event_type text, handler text) ON k.event_type = e.event_type
ON CONFLICT (created_time, event_id, handler) DO NOTHING

-- ListSubscriptions
SELECT event_type, handler, dispatcher, start_time, start_id, behind_time, behind_id
FROM "iam"."app_outbox_subscriptions" ORDER BY event_type, handler

-- ListUnserved
SELECT event_type, handler FROM "iam"."app_outbox_subscriptions"
WHERE dispatcher = $1 AND served_time <= clock_timestamp() - $2::bigint * interval '1 microsecond'
ORDER BY event_type, handler

-- MoveSubscription
UPDATE "iam"."app_outbox_subscriptions" SET start_time = $3, start_id = $4, behind_time = $5, behind_id = $6
WHERE event_type = $1 AND handler = $2

-- ForgetSubscription
DELETE FROM "iam"."app_outbox_subscriptions" WHERE event_type = $1 AND handler = $2

-- SaveCounts
INSERT INTO "iam"."app_outbox_audit" (dispatcher, bucket_time, events, offsets, offsets_events)
SELECT c.dispatcher, timestamptz 'epoch' + k.micros * interval '1 microsecond', k.events, k.offsets, k.offsets_events
FROM "iam"."app_outbox_cursors" AS c, json_to_recordset($3::json) AS k(micros bigint, events bigint, offsets bigint, offsets_events bigint)
WHERE c.dispatcher = $1 AND c.token = $2 AND c.owner = $4 AND concat((extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint, '/',
    (extract(epoch FROM pg_stat_get_bgwriter_stat_reset_time()) * 1000000)::bigint) = $5::text
ON CONFLICT (dispatcher, bucket_time) DO UPDATE SET events = excluded.events, offsets = excluded.offsets, offsets_events = excluded.offsets_events

-- LoadCounts
SELECT bucket_time, events, offsets, offsets_events FROM "iam"."app_outbox_audit"
WHERE dispatcher = $1 AND bucket_time >= $2 AND bucket_time < $3 ORDER BY bucket_time

-- ForgetCounts
DELETE FROM "iam"."app_outbox_audit" WHERE dispatcher = $1 AND bucket_time < $2

-- LoadAttempts
SELECT created_time, event_id, handler, attempts, last_error, next_time
FROM "iam"."app_outbox_attempts" WHERE dispatcher = $1
ORDER BY created_time, event_id, handler LIMIT $2

-- LoadAttempt
SELECT created_time, event_id, handler, attempts, last_error, next_time
FROM "iam"."app_outbox_attempts"
WHERE dispatcher = $1 AND created_time = $2 AND event_id = $3 AND handler = $4

-- RecordFailure
INSERT INTO "iam"."app_outbox_attempts" AS a (dispatcher, created_time, event_id, handler, attempts, last_error, next_time)
SELECT dispatcher, $3::timestamptz, $4::text, $5::text, $6::integer, $7::text, clock_timestamp() + $8::bigint * interval '1 microsecond'
FROM "iam"."app_outbox_cursors" WHERE dispatcher = $1 AND token = $2 AND owner = $9 AND concat((extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint, '/',
    (extract(epoch FROM pg_stat_get_bgwriter_stat_reset_time()) * 1000000)::bigint) = $10::text
ON CONFLICT (dispatcher, created_time, event_id, handler) DO UPDATE SET
  attempts = a.attempts + excluded.attempts, last_error = excluded.last_error, next_time = excluded.next_time

-- SettleAttempts
DELETE FROM "iam"."app_outbox_attempts" AS a
USING "iam"."app_outbox_cursors" AS c, json_to_recordset($3::json) AS k(micros bigint, id text, handler text)
WHERE c.dispatcher = $1 AND c.token = $2 AND c.owner = $4 AND concat((extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint, '/',
    (extract(epoch FROM pg_stat_get_bgwriter_stat_reset_time()) * 1000000)::bigint) = $5::text
  AND a.dispatcher = $1 AND a.created_time = timestamptz 'epoch' + k.micros * interval '1 microsecond'
  AND a.event_id = k.id AND a.handler = k.handler

-- ForgetAttempts
DELETE FROM "iam"."app_outbox_attempts" WHERE dispatcher = $1 AND created_time < $2

-- AddDeadLetter
INSERT INTO "iam"."app_outbox_dead_letters" (dispatcher, created_time, event_id, handler, account_id,
  aggregate_type, aggregate_id, event_type, payload, attempts, last_error, state, dead_time)
SELECT dispatcher, $3::timestamptz, $4::text, $5::text, $6::text, $7::text, $8::text, $9::text, $10::bytea,
  $11::integer, $12::text, $13::text, clock_timestamp()
FROM "iam"."app_outbox_cursors" WHERE dispatcher = $1 AND token = $2 AND owner = $14 AND concat((extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint, '/',
    (extract(epoch FROM pg_stat_get_bgwriter_stat_reset_time()) * 1000000)::bigint) = $15::text
ON CONFLICT (created_time, event_id, handler) DO NOTHING

-- ListDeadLetters
SELECT created_time, event_id, handler, dispatcher, account_id, aggregate_type, aggregate_id, event_type, CASE WHEN $12::boolean THEN ''::bytea ELSE payload END,
  attempts, last_error, state, dead_time
FROM "iam"."app_outbox_dead_letters"
WHERE $1::text = ''
  AND ($2::text = '' OR dispatcher = $2) AND ($3::text = '' OR handler = $3) AND ($4::text = '' OR event_id = $4)
  AND ($5::text = '' OR event_type = $5) AND ($6::text = '' OR account_id = $6)
  AND ($7::text = '' OR aggregate_type = $7) AND ($8::text = '' OR aggregate_id = $8)
  AND (created_time, event_id, handler) > ($9, $10, $11)
ORDER BY created_time, event_id, handler LIMIT $13

-- ListDeadLettersIn
SELECT created_time, event_id, handler, dispatcher, account_id, aggregate_type, aggregate_id, event_type, CASE WHEN $12::boolean THEN ''::bytea ELSE payload END,
  attempts, last_error, state, dead_time
FROM "iam"."app_outbox_dead_letters"
WHERE state = $1
  AND ($2::text = '' OR dispatcher = $2) AND ($3::text = '' OR handler = $3) AND ($4::text = '' OR event_id = $4)
  AND ($5::text = '' OR event_type = $5) AND ($6::text = '' OR account_id = $6)
  AND ($7::text = '' OR aggregate_type = $7) AND ($8::text = '' OR aggregate_id = $8)
  AND (created_time, event_id, handler) > ($9, $10, $11)
ORDER BY created_time, event_id, handler LIMIT $13

-- GetDeadLetter
SELECT created_time, event_id, handler, dispatcher, account_id, aggregate_type, aggregate_id, event_type, payload,
  attempts, last_error, state, dead_time
FROM "iam"."app_outbox_dead_letters"
WHERE created_time = $1 AND event_id = $2 AND handler = $3

-- MoveDeadLetter
UPDATE "iam"."app_outbox_dead_letters" AS l SET state = concat($5::text, CASE WHEN $8::text <> '' THEN left(set_config('idle_in_transaction_session_timeout', $8::text, true), 0) END),
  attempts = l.attempts + $6::integer, last_error = coalesce(nullif($7::text, ''), l.last_error)
WHERE l.created_time = $1 AND l.event_id = $2 AND l.handler = $3 AND l.state = $4

-- PurgeDeadLetters
DELETE FROM "iam"."app_outbox_dead_letters" WHERE (created_time, event_id, handler) IN (
  SELECT created_time, event_id, handler FROM "iam"."app_outbox_dead_letters"
  WHERE state IN ('replayed', 'discarded') AND dead_time < $1
  ORDER BY state, created_time, event_id, handler LIMIT $2)

-- CountAfter
SELECT count(*) FROM (
  SELECT 1 FROM "iam"."app_outbox" WHERE created_time >= $1 AND (created_time, id) > ($1, $2)
  ORDER BY created_time, id LIMIT $3) AS n

-- CountAttempts
SELECT count(*) FROM (SELECT 1 FROM "iam"."app_outbox_attempts" WHERE dispatcher = $1 LIMIT $2) AS n

-- CountLetters
SELECT l.dispatcher, s.state, count(*)
FROM unnest(ARRAY['dead', 'requeued', 'replayed', 'discarded']) AS s(state)
CROSS JOIN LATERAL (
  SELECT dispatcher FROM "iam"."app_outbox_dead_letters" WHERE state = s.state LIMIT $1
) AS l
GROUP BY l.dispatcher, s.state

-- Producers
WITH lock AS MATERIALIZED (SELECT * FROM pg_locks WHERE locktype IN ('advisory', 'transactionid'))
SELECT timestamptz 'epoch' + min(k.ms) * interval '1 millisecond', coalesce(l.pid, 0), coalesce(min(a.application_name), ''),
  coalesce(min(a.state), ''), coalesce(min(p.gid), '')
FROM lock AS l
CROSS JOIN LATERAL (SELECT (l.classid::bigint & 4095) << 32 | l.objid::bigint) AS k(ms)
LEFT JOIN pg_stat_activity AS a ON a.pid = l.pid
LEFT JOIN lock AS x ON l.pid IS NULL AND x.pid IS NULL AND x.locktype = 'transactionid' AND x.virtualtransaction = l.virtualtransaction
LEFT JOIN pg_prepared_xacts AS p ON p.transaction = x.transactionid
WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.mode = 'ShareLock'
  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND l.classid::bigint >> 12 = '"iam"."app_outbox"'::regclass::oid::bigint & 524287
  AND k.ms BETWEEN 1577836800000 AND extract(epoch FROM statement_timestamp()) * 1000
GROUP BY l.pid, l.virtualtransaction
ORDER BY 1, 2 LIMIT $1

-- ProbeSession
SELECT clock_timestamp(), NOT pg_is_in_recovery(), current_setting('transaction_read_only') = 'off', $1::timestamptz

-- EventAhead
SELECT id, created_time::text FROM "iam"."app_outbox"
WHERE created_time > clock_timestamp() + interval '1 hour' ORDER BY created_time DESC, id DESC LIMIT 1

-- LackedByRetention
SELECT c.oid::regclass::text, 'ownership'
FROM pg_class AS c
WHERE c.oid IN (SELECT t.oid FROM unnest(ARRAY['"iam"."app_outbox"'::regclass, '"iam"."app_outbox_idempotency"'::regclass]) AS p(oid),
    LATERAL (SELECT p.oid UNION ALL SELECT inhrelid FROM pg_inherits WHERE inhparent = p.oid) AS t(oid))
  AND NOT pg_has_role(c.relowner, 'USAGE')
UNION ALL
SELECT n.nspname::text, 'CREATE' FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.oid = '"iam"."app_outbox"'::regclass AND NOT has_schema_privilege(n.oid, 'CREATE')
ORDER BY 1

-- OutboxTable
"iam"."app_outbox"

-- MarkerTable
"iam"."app_outbox_idempotency"

-- NextEvent
SELECT created_time, id FROM "iam"."app_outbox"
WHERE created_time >= $1 AND (created_time, id) > ($1, $2) AND created_time < $3
ORDER BY created_time, id LIMIT 1

-- ListPartitions
WITH style AS MATERIALIZED (SELECT set_config('DateStyle', 'ISO', true) AS name)
SELECT c.relname, format('%I.%I', n.nspname, c.relname),
  substring(b.bound FROM 'FROM [(]''([^'']+)''[)]')::timestamptz, substring(b.bound FROM 'TO [(]''([^'']+)''[)]')::timestamptz,
  i.inhdetachpending, b.bound = 'DEFAULT'
FROM style, pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid JOIN pg_namespace AS n ON n.oid = c.relnamespace,
  LATERAL (SELECT CASE WHEN style.name <> '' THEN pg_get_expr(c.relpartbound, 0) END AS bound OFFSET 0) AS b
WHERE i.inhparent = $1::text::regclass AND b.bound IS NOT NULL

-- LastStamp
SELECT max(created_time) FROM <partition>

-- TableHolders
SELECT virtualtransaction FROM pg_locks
WHERE locktype = 'relation' AND relation = $1::text::regclass AND granted AND pid <> pg_backend_pid()
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())

-- LimitWaits
SELECT set_config('lock_timeout', $1, true), set_config('idle_in_transaction_session_timeout', $2, true)

-- LimitStatements
SELECT set_config('statement_timeout', $1, true)

-- LockTable
LOCK TABLE ONLY <table> IN ACCESS EXCLUSIVE MODE

-- DetachPartition
ALTER TABLE <table> DETACH PARTITION <partition>

-- RenamePartition
ALTER TABLE <partition> RENAME TO "<name>"

-- AttachPartition
ALTER TABLE <table> ATTACH PARTITION "iam"."<name>" FOR VALUES FROM ('<from> UTC') TO ('<to> UTC')

-- CreatePartition
CREATE TABLE "iam"."<name>" PARTITION OF <table> FOR VALUES FROM ('<from> UTC') TO ('<to> UTC')

-- CreateLast
CREATE TABLE "iam"."<name>" PARTITION OF <table> FOR VALUES FROM ('<from> UTC') TO (MAXVALUE)

-- BoundPartition
ALTER TABLE <partition> DROP CONSTRAINT IF EXISTS outbox_closed,
  ADD CONSTRAINT outbox_closed CHECK (created_time >= '<from> UTC' AND created_time < '<to> UTC') NOT VALID

-- LastBound
WITH style AS MATERIALIZED (SELECT set_config('DateStyle', 'ISO', true) AS name)
SELECT substring(CASE WHEN style.name <> '' THEN pg_get_constraintdef(c.oid) END FROM '< ''([^'']+)''')::timestamptz
FROM style, pg_constraint AS c WHERE c.conrelid = $1::text::regclass AND c.conname = 'outbox_closed'

-- ValidateBound
ALTER TABLE <partition> VALIDATE CONSTRAINT outbox_closed

-- UnboundPartition
ALTER TABLE <partition> DROP CONSTRAINT IF EXISTS outbox_closed

-- UnboundAttached
ALTER TABLE "iam"."<name>" DROP CONSTRAINT IF EXISTS outbox_closed

-- TakenNames
SELECT 1 FROM (
  SELECT relname AS name, relnamespace AS namespace FROM pg_class UNION ALL SELECT typname, typnamespace FROM pg_type
) AS o JOIN pg_namespace AS n ON n.oid = o.namespace
WHERE o.name = $2::text
  AND (n.nspname = current_schema() OR n.oid = (SELECT relnamespace FROM pg_class WHERE oid = $1::text::regclass))
LIMIT 1

-- FinishDetach
ALTER TABLE <table> DETACH PARTITION <partition> FINALIZE

-- UnmarkDropped
COMMENT ON TABLE <partition> IS NULL

-- ListMarked
SELECT c.relname, format('%I.%I', n.nspname, c.relname)
FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace JOIN pg_class AS parent ON parent.relnamespace = n.oid
LEFT JOIN pg_inherits AS i ON i.inhrelid = c.oid AND i.inhparent = parent.oid
WHERE parent.oid = $1::text::regclass AND c.relkind = 'r' AND c.relispartition = $2::boolean
  AND coalesce(NOT i.inhdetachpending, false) = $2::boolean
  AND obj_description(c.oid, 'pg_class') = 'retention drops this partition of ' || parent.relname

-- Dependents
SELECT DISTINCT pg_describe_object(d.classid, d.objid, d.objsubid)
FROM pg_depend AS d LEFT JOIN pg_constraint AS own ON d.classid = 'pg_constraint'::regclass AND own.oid = d.objid AND own.conrelid = d.refobjid
WHERE d.refclassid = 'pg_class'::regclass AND d.deptype = 'n' AND own.oid IS NULL
  AND d.refobjid IN (SELECT $1::text::regclass UNION ALL SELECT indexrelid FROM pg_index WHERE indrelid = $1::text::regclass)
ORDER BY 1

-- DropTable
DROP TABLE IF EXISTS <partition>

-- EndOfRange
SELECT number, created_time, id FROM (
  SELECT row_number() OVER (ORDER BY created_time, id) AS number, created_time, id FROM (
    SELECT created_time, id FROM "iam"."app_outbox"
    WHERE created_time >= $1 AND (created_time, id) >= ($1, $2) AND created_time <= $3 AND (created_time, id) < ($3, $4)
    ORDER BY created_time, id LIMIT $5
  ) AS k
) AS numbered ORDER BY number DESC LIMIT 1

-- StartOfRange
SELECT number, created_time, id FROM (
  SELECT row_number() OVER (ORDER BY created_time DESC, id DESC) AS number, created_time, id FROM (
    SELECT created_time, id FROM "iam"."app_outbox"
    WHERE created_time >= $1 AND (created_time, id) >= ($1, $2) AND created_time <= $3 AND (created_time, id) < ($3, $4)
    ORDER BY created_time DESC, id DESC LIMIT $5
  ) AS k
) AS numbered ORDER BY number DESC LIMIT 1

-- SelectRecords
SELECT created_time, id, account_id, aggregate_type, aggregate_id, event_type, CASE WHEN $10::boolean THEN ''::bytea ELSE payload END
FROM "iam"."app_outbox"
WHERE created_time >= $1 AND (created_time, id) >= ($1, $2) AND created_time <= $3 AND (created_time, id) < ($3, $4)
  AND ($5::text = '' OR id = $5) AND ($6::text = '' OR event_type = $6) AND ($7::text = '' OR account_id = $7)
  AND ($8::text = '' OR aggregate_type = $8) AND ($9::text = '' OR aggregate_id = $9)
ORDER BY created_time, id LIMIT $11

-- SelectRecordsBack
SELECT created_time, id, account_id, aggregate_type, aggregate_id, event_type, CASE WHEN $10::boolean THEN ''::bytea ELSE payload END
FROM "iam"."app_outbox"
WHERE created_time >= $1 AND (created_time, id) >= ($1, $2) AND created_time <= $3 AND (created_time, id) < ($3, $4)
  AND ($5::text = '' OR id = $5) AND ($6::text = '' OR event_type = $6) AND ($7::text = '' OR account_id = $7)
  AND ($8::text = '' OR aggregate_type = $8) AND ($9::text = '' OR aggregate_id = $9)
ORDER BY created_time DESC, id DESC LIMIT $11

-- AppliedHandlers
SELECT handler FROM "iam"."app_outbox_idempotency" WHERE created_time = $1 AND event_id = $2 ORDER BY handler

-- LoadFailures
SELECT created_time, event_id, handler, attempts, last_error, next_time
FROM "iam"."app_outbox_attempts" WHERE dispatcher = $1 AND created_time = $2 AND event_id = $3 ORDER BY handler

-- DescribeServer
SELECT 'version', version()
UNION ALL
SELECT 'advisory locks', count(*)::text FROM pg_catalog.pg_proc WHERE proname = 'pg_advisory_xact_lock_shared'
UNION ALL
SELECT name, current_setting(name) FROM unnest(ARRAY['client_encoding', 'DateStyle', 'bytea_output']) AS s(name)

-- DescribeTables
WITH named AS MATERIALIZED (
  SELECT to_regclass(t.name)::oid AS oid, t.name IN ('"iam"."app_outbox"', '"iam"."app_outbox_idempotency"') AS partitioned
  FROM unnest(ARRAY['"iam"."app_outbox_schema"', '"iam"."app_outbox"', '"iam"."app_outbox_idempotency"',
    '"iam"."app_outbox_dedup"', '"iam"."app_outbox_cursors"', '"iam"."app_outbox_subscriptions"',
    '"iam"."app_outbox_audit"', '"iam"."app_outbox_attempts"', '"iam"."app_outbox_dead_letters"']) AS t(name)
)
SELECT c.oid::regclass::text, 'hidden rows',
  coalesce((SELECT string_agg(polname, ', ' ORDER BY polname) FROM pg_policy WHERE polrelid = c.oid), '')
FROM named JOIN pg_class AS c ON c.oid = named.oid WHERE row_security_active(c.oid)
UNION ALL
SELECT c.oid::regclass::text, 'hidden rows of a partition',
  coalesce((SELECT string_agg(polname, ', ' ORDER BY polname) FROM pg_policy WHERE polrelid = c.oid), '')
FROM named JOIN pg_inherits AS i ON i.inhparent = named.oid JOIN pg_class AS c ON c.oid = i.inhrelid
WHERE named.partitioned AND row_security_active(c.oid)
UNION ALL
SELECT c.oid::regclass::text, 'rule', r.rulename::text
FROM named JOIN pg_class AS c ON c.oid = named.oid JOIN pg_rewrite AS r ON r.ev_class = c.oid
WHERE c.relkind IN ('r', 'p') AND r.is_instead AND r.ev_enabled <> 'D'
UNION ALL
SELECT c.oid::regclass::text, CASE WHEN c.relkind NOT IN ('r', 'p') THEN 'no table' WHEN c.relpersistence = 't' THEN 'temporary' ELSE 'unlogged' END, ''
FROM named JOIN pg_class AS c ON c.oid = named.oid WHERE c.relkind NOT IN ('r', 'p') OR c.relpersistence <> 'p'

-- ProbeFormat
SELECT timestamptz '2026-03-29 01:59:59+00', decode('00', 'hex')

-- SessionIdleLimit
SELECT coalesce(reset_val, '0') FROM pg_catalog.pg_settings WHERE name = 'idle_in_transaction_session_timeout'

-- FindSchema
SELECT 1 WHERE to_regclass('"iam"."app_outbox_schema"') IS NOT NULL

-- SchemaVersions
SELECT version FROM "iam"."app_outbox_schema"

-- IsolateMigrations
SET TRANSACTION ISOLATION LEVEL READ COMMITTED

-- LockMigrations
SELECT pg_advisory_xact_lock(hashtext('"iam"."app_outbox_schema"'), 0)

