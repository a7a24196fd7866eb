package sqlstore

// postgresSidecar is what PostgreSQL runs for the dispatchers' sidecar.
var postgresSidecar = sidecarStatements{
	LoadCursor: `
SELECT dispatcher, created_time, event_id, owner, token, expires_time, unclean, counted_from, bucket_events, bucket_offsets, bucket_offsets_events,
  ` + postgresLife + `
FROM {schema}"{prefix}outbox_cursors" WHERE dispatcher = $1`,

	ListCursors: `
SELECT dispatcher, created_time, event_id, owner, token, expires_time, unclean, counted_from, bucket_events, bucket_offsets, bucket_offsets_events,
  ` + postgresLife + `
FROM {schema}"{prefix}outbox_cursors" ORDER BY dispatcher`,

	// Whoever writes what belongs to a dispatcher, in more than one
	// statement, has locked its cursor first.
	// Whoever wants the lease waits for this lock, and for that of SaveCursor. So
	// the server ends a transaction that stands idle with it, as one does whose
	// process is paused, or whose machine is gone.
	LockCursor: `
SELECT dispatcher, created_time, event_id, owner, token, expires_time, unclean, counted_from, bucket_events, bucket_offsets, bucket_offsets_events,
  ` + postgresLife + `
FROM {schema}"{prefix}outbox_cursors"
WHERE dispatcher = $1 AND set_config('idle_in_transaction_session_timeout', '5s', true) IS NOT NULL FOR UPDATE`,

	CreateCursor: `
INSERT INTO {schema}"{prefix}outbox_cursors" (dispatcher, created_time, event_id, counted_from) VALUES ($1, $2, $3, $4)
ON CONFLICT (dispatcher) DO NOTHING`,

	AcquireLease: `
UPDATE {schema}"{prefix}outbox_cursors" SET
  token = CASE WHEN owner = $2 THEN token ELSE greatest(token,
    COALESCE((SELECT events FROM {schema}"{prefix}outbox_audit" WHERE dispatcher = $1 AND bucket_time = '9999-12-31 23:59:59.999999+00'), 0)) + 1 END,
  unclean = CASE WHEN owner = $2 THEN unclean ELSE owner <> '' END,
  owner = $2,
  expires_time = clock_timestamp() + $3::bigint * interval '1 microsecond'
WHERE dispatcher = $1 AND (owner IN ($2, '') OR expires_time <= clock_timestamp())`,

	ReleaseLease: `
UPDATE {schema}"{prefix}outbox_cursors" SET owner = '', expires_time = NULL, unclean = false
WHERE dispatcher = $1 AND token = $2 AND owner = $3 AND ` + postgresLife + ` = $4::text`,

	SaveCursor: `
UPDATE {schema}"{prefix}outbox_cursors" SET
  bucket_events = CASE WHEN (created_time, event_id) <= ($3, $4) THEN $5 ELSE bucket_events END,
  bucket_offsets = CASE WHEN (created_time, event_id) <= ($3, $4) THEN $6 ELSE bucket_offsets END,
  bucket_offsets_events = CASE WHEN (created_time, event_id) <= ($3, $4) THEN $7 ELSE bucket_offsets_events END,
  created_time = CASE WHEN (created_time, event_id) < ($3, $4) THEN $3 ELSE created_time END,
  event_id = CASE WHEN (created_time, event_id) < ($3, $4) THEN $4 ELSE event_id END
WHERE dispatcher = $1 AND token = $2 AND owner = $8 AND ` + postgresLife + ` = $9::text
  AND set_config('idle_in_transaction_session_timeout', '5s', true) IS NOT NULL`,

	RewindCursor: `
UPDATE {schema}"{prefix}outbox_cursors" SET created_time = $2, event_id = $3, counted_from = $4, bucket_events = 0, bucket_offsets = 0, bucket_offsets_events = 0, token = token + 1
WHERE dispatcher = $1`,

	ForgetCursor: `DELETE FROM {schema}"{prefix}outbox_cursors" WHERE dispatcher = $1`,

	// At the end of time, which no count is of and nothing that forgets counts
	// reaches, that of the release before neither.
	KeepToken: `
INSERT INTO {schema}"{prefix}outbox_audit" AS a (dispatcher, bucket_time, events) VALUES ($1, $2, $3)
ON CONFLICT (dispatcher, bucket_time) DO UPDATE SET events = greatest(a.events, excluded.events)`,

	HoldsToken: `SELECT 1 FROM {schema}"{prefix}outbox_cursors" WHERE dispatcher = $1 AND token = $2 AND owner = $3 AND ` + postgresLife + ` = $4::text`,

	RegisterSubscriptions: `
INSERT INTO {schema}"{prefix}outbox_subscriptions" (event_type, handler, dispatcher, start_time, start_id, behind_time, behind_id, served_time)
SELECT k.event_type, k.handler, $2::text, $3::timestamptz, $4::text, $3, $4, clock_timestamp()
FROM json_to_recordset($1::json) AS k(event_type text, handler text)
ON CONFLICT (event_type, handler) DO UPDATE SET served_time = excluded.served_time`,

	// One statement, so one snapshot, which is taken when the subscription is there.
	SettleVisible: `
INSERT INTO {schema}"{prefix}outbox_idempotency" (created_time, event_id, handler)
SELECT e.created_time, e.id, k.handler
FROM (SELECT created_time, id, event_type FROM {schema}"{prefix}outbox"
  WHERE created_time >= $2 AND (created_time, id) > ($2, $3)
  ORDER BY created_time, id LIMIT $4) AS e
JOIN json_to_recordset($1::json) AS k(event_type text, handler text) ON k.event_type = e.event_type
ON CONFLICT (created_time, event_id, handler) DO NOTHING`,

	ListSubscriptions: `
SELECT event_type, handler, dispatcher, start_time, start_id, behind_time, behind_id
FROM {schema}"{prefix}outbox_subscriptions" ORDER BY event_type, handler`,

	ListUnserved: `
SELECT event_type, handler FROM {schema}"{prefix}outbox_subscriptions"
WHERE dispatcher = $1 AND served_time <= clock_timestamp() - $2::bigint * interval '1 microsecond'
ORDER BY event_type, handler`,

	MoveSubscription: `
UPDATE {schema}"{prefix}outbox_subscriptions" SET start_time = $3, start_id = $4, behind_time = $5, behind_id = $6
WHERE event_type = $1 AND handler = $2`,

	ForgetSubscription: `DELETE FROM {schema}"{prefix}outbox_subscriptions" WHERE event_type = $1 AND handler = $2`,

	SaveCounts: `
INSERT INTO {schema}"{prefix}outbox_audit" (dispatcher, bucket_time, events, offsets, offsets_events)
SELECT c.dispatcher, timestamptz 'epoch' + k.micros * interval '1 microsecond', k.events, k.offsets, k.offsets_events
FROM {schema}"{prefix}outbox_cursors" AS c, json_to_recordset($3::json) AS k(micros bigint, events bigint, offsets bigint, offsets_events bigint)
WHERE c.dispatcher = $1 AND c.token = $2 AND c.owner = $4 AND ` + postgresLife + ` = $5::text
ON CONFLICT (dispatcher, bucket_time) DO UPDATE SET events = excluded.events, offsets = excluded.offsets, offsets_events = excluded.offsets_events`,

	LoadCounts: `
SELECT bucket_time, events, offsets, offsets_events FROM {schema}"{prefix}outbox_audit"
WHERE dispatcher = $1 AND bucket_time >= $2 AND bucket_time < $3 ORDER BY bucket_time`,

	ForgetCounts: `DELETE FROM {schema}"{prefix}outbox_audit" WHERE dispatcher = $1 AND bucket_time < $2`,

	LoadAttempts: `
SELECT created_time, event_id, handler, attempts, last_error, next_time
FROM {schema}"{prefix}outbox_attempts" WHERE dispatcher = $1
ORDER BY created_time, event_id, handler LIMIT $2`,

	LoadAttempt: `
SELECT created_time, event_id, handler, attempts, last_error, next_time
FROM {schema}"{prefix}outbox_attempts"
WHERE dispatcher = $1 AND created_time = $2 AND event_id = $3 AND handler = $4`,

	// Selecting from the cursor is the fence: no row for a stale token.
	RecordFailure: `
INSERT INTO {schema}"{prefix}outbox_attempts" AS a (dispatcher, created_time, event_id, handler, attempts, last_error, next_time)
SELECT dispatcher, $3::timestamptz, $4::text, $5::text, $6::integer, $7::text, clock_timestamp() + $8::bigint * interval '1 microsecond'
FROM {schema}"{prefix}outbox_cursors" WHERE dispatcher = $1 AND token = $2 AND owner = $9 AND ` + postgresLife + ` = $10::text
ON CONFLICT (dispatcher, created_time, event_id, handler) DO UPDATE SET
  attempts = a.attempts + excluded.attempts, last_error = excluded.last_error, next_time = excluded.next_time`,

	SettleAttempts: `
DELETE FROM {schema}"{prefix}outbox_attempts" AS a
USING {schema}"{prefix}outbox_cursors" AS c, json_to_recordset($3::json) AS k(micros bigint, id text, handler text)
WHERE c.dispatcher = $1 AND c.token = $2 AND c.owner = $4 AND ` + postgresLife + ` = $5::text
  AND a.dispatcher = $1 AND a.created_time = timestamptz 'epoch' + k.micros * interval '1 microsecond'
  AND a.event_id = k.id AND a.handler = k.handler`,

	ForgetAttempts: `DELETE FROM {schema}"{prefix}outbox_attempts" WHERE dispatcher = $1 AND created_time < $2`,

	AddDeadLetter: `
INSERT INTO {schema}"{prefix}outbox_dead_letters" (dispatcher, created_time, event_id, handler, account_id,
  aggregate_type, aggregate_id, event_type, payload, attempts, last_error, state, dead_time)
SELECT dispatcher, $3::timestamptz, $4::text, $5::text, $6::text, $7::text, $8::text, $9::text, $10::bytea,
  $11::integer, $12::text, $13::text, clock_timestamp()
FROM {schema}"{prefix}outbox_cursors" WHERE dispatcher = $1 AND token = $2 AND owner = $14 AND ` + postgresLife + ` = $15::text
ON CONFLICT (created_time, event_id, handler) DO NOTHING`,

	ListDeadLetters: `
SELECT created_time, event_id, handler, dispatcher, account_id, aggregate_type, aggregate_id, event_type, CASE WHEN $12::boolean THEN ''::bytea ELSE payload END,
  attempts, last_error, state, dead_time
FROM {schema}"{prefix}outbox_dead_letters"
WHERE $1::text = ''
  AND ($2::text = '' OR dispatcher = $2) AND ($3::text = '' OR handler = $3) AND ($4::text = '' OR event_id = $4)
  AND ($5::text = '' OR event_type = $5) AND ($6::text = '' OR account_id = $6)
  AND ($7::text = '' OR aggregate_type = $7) AND ($8::text = '' OR aggregate_id = $8)
  AND (created_time, event_id, handler) > ($9, $10, $11)
ORDER BY created_time, event_id, handler LIMIT $13`,

	// The same for those in a state, which have an index: the few that are requeued
	// are looked for again and again.
	ListDeadLettersIn: `
SELECT created_time, event_id, handler, dispatcher, account_id, aggregate_type, aggregate_id, event_type, CASE WHEN $12::boolean THEN ''::bytea ELSE payload END,
  attempts, last_error, state, dead_time
FROM {schema}"{prefix}outbox_dead_letters"
WHERE state = $1
  AND ($2::text = '' OR dispatcher = $2) AND ($3::text = '' OR handler = $3) AND ($4::text = '' OR event_id = $4)
  AND ($5::text = '' OR event_type = $5) AND ($6::text = '' OR account_id = $6)
  AND ($7::text = '' OR aggregate_type = $7) AND ($8::text = '' OR aggregate_id = $8)
  AND (created_time, event_id, handler) > ($9, $10, $11)
ORDER BY created_time, event_id, handler LIMIT $13`,

	GetDeadLetter: `
SELECT created_time, event_id, handler, dispatcher, account_id, aggregate_type, aggregate_id, event_type, payload,
  attempts, last_error, state, dead_time
FROM {schema}"{prefix}outbox_dead_letters"
WHERE created_time = $1 AND event_id = $2 AND handler = $3`,

	// Limits how long the transaction may stand idle, as the marker does.
	MoveDeadLetter: `
UPDATE {schema}"{prefix}outbox_dead_letters" AS l SET state = concat($5::text, ` + unlessEmpty("$8", limitIdle("$8")) + `),
  attempts = l.attempts + $6::integer, last_error = coalesce(nullif($7::text, ''), l.last_error)
WHERE l.created_time = $1 AND l.event_id = $2 AND l.handler = $3 AND l.state = $4`,

	// In the order of the index, so that two of them lock rows in the same order.
	PurgeDeadLetters: `
DELETE FROM {schema}"{prefix}outbox_dead_letters" WHERE (created_time, event_id, handler) IN (
  SELECT created_time, event_id, handler FROM {schema}"{prefix}outbox_dead_letters"
  WHERE state IN ('replayed', 'discarded') AND dead_time < $1
  ORDER BY state, created_time, event_id, handler LIMIT $2)`,
}
