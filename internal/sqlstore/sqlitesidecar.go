package sqlstore

// sqliteSidecar is what SQLite runs for the dispatchers' sidecar.
var sqliteSidecar = sidecarStatements{
	LoadCursor: `
SELECT dispatcher, created_time, event_id, owner, token, expires_time, unclean, counted_from, bucket_events, bucket_offsets, bucket_offsets_events, ''
FROM "{prefix}outbox_cursors" WHERE dispatcher = ?1`,

	ListCursors: `
SELECT dispatcher, created_time, event_id, owner, token, expires_time, unclean, counted_from, bucket_events, bucket_offsets, bucket_offsets_events, ''
FROM "{prefix}outbox_cursors" ORDER BY dispatcher`,

	// BEGIN IMMEDIATE has locked it.
	LockCursor: `
SELECT dispatcher, created_time, event_id, owner, token, expires_time, unclean, counted_from, bucket_events, bucket_offsets, bucket_offsets_events, ''
FROM "{prefix}outbox_cursors" WHERE dispatcher = ?1`,

	CreateCursor: `
INSERT INTO "{prefix}outbox_cursors" (dispatcher, created_time, event_id, counted_from) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (dispatcher) DO NOTHING`,

	AcquireLease: `
UPDATE "{prefix}outbox_cursors" SET
  token = CASE WHEN owner = ?2 THEN token ELSE max(token,
    COALESCE((SELECT events FROM "{prefix}outbox_audit" WHERE dispatcher = ?1 AND bucket_time = 253402300799999999), 0)) + 1 END,
  unclean = CASE WHEN owner = ?2 THEN unclean ELSE owner <> '' END,
  owner = ?2,
  expires_time = CAST(unixepoch('subsec') * 1000000 AS INTEGER) + ?3
WHERE dispatcher = ?1 AND (owner IN (?2, '') OR expires_time <= CAST(unixepoch('subsec') * 1000000 AS INTEGER))`,

	ReleaseLease: `
UPDATE "{prefix}outbox_cursors" SET owner = '', expires_time = NULL, unclean = 0
WHERE dispatcher = ?1 AND token = ?2 AND owner = ?3`,

	// The high-water mark is where the cursor has been, whatever an operator
	// does to it.
	SaveCursor: `
UPDATE "{prefix}outbox_cursors" SET
  high_water = max(high_water, ?3),
  bucket_events = CASE WHEN (created_time, event_id) <= (?3, ?4) THEN ?5 ELSE bucket_events END,
  bucket_offsets = CASE WHEN (created_time, event_id) <= (?3, ?4) THEN ?6 ELSE bucket_offsets END,
  bucket_offsets_events = CASE WHEN (created_time, event_id) <= (?3, ?4) THEN ?7 ELSE bucket_offsets_events END,
  created_time = CASE WHEN (created_time, event_id) < (?3, ?4) THEN ?3 ELSE created_time END,
  event_id = CASE WHEN (created_time, event_id) < (?3, ?4) THEN ?4 ELSE event_id END
WHERE dispatcher = ?1 AND token = ?2 AND owner = ?8`,

	RewindCursor: `
UPDATE "{prefix}outbox_cursors" SET created_time = ?2, event_id = ?3, counted_from = ?4, bucket_events = 0, bucket_offsets = 0, bucket_offsets_events = 0, token = token + 1
WHERE dispatcher = ?1`,

	ForgetCursor: `DELETE FROM "{prefix}outbox_cursors" WHERE dispatcher = ?1`,

	// At the end of time, which no count is of and nothing that forgets counts
	// reaches, that of the release before neither.
	KeepToken: `
INSERT INTO "{prefix}outbox_audit" (dispatcher, bucket_time, events) VALUES (?1, ?2, ?3)
ON CONFLICT (dispatcher, bucket_time) DO UPDATE SET events = max(events, excluded.events)`,

	HoldsToken: `SELECT 1 FROM "{prefix}outbox_cursors" WHERE dispatcher = ?1 AND token = ?2 AND owner = ?3`,

	// WHERE tells the parser that ON is no join.
	RegisterSubscriptions: `
INSERT INTO "{prefix}outbox_subscriptions" (event_type, handler, dispatcher, start_time, start_id, behind_time, behind_id, served_time)
SELECT k.value ->> 'event_type', k.value ->> 'handler', ?2, ?3, ?4, ?3, ?4, CAST(unixepoch('subsec') * 1000000 AS INTEGER)
FROM json_each(?1) AS k WHERE true
ON CONFLICT (event_type, handler) DO UPDATE SET served_time = excluded.served_time`,

	SettleVisible: `
INSERT INTO "{prefix}outbox_idempotency" (created_time, event_id, handler)
SELECT e.created_time, e.id, k.value ->> 'handler'
FROM (SELECT created_time, id, event_type FROM "{prefix}outbox"
  WHERE (created_time, id) > (?2, ?3) ORDER BY created_time, id LIMIT ?4) AS e
JOIN json_each(?1) AS k ON k.value ->> 'event_type' = e.event_type WHERE true
ON CONFLICT (created_time, event_id, handler) DO NOTHING`,

	ListSubscriptions: `
SELECT event_type, handler, dispatcher, start_time, start_id, behind_time, behind_id
FROM "{prefix}outbox_subscriptions" ORDER BY event_type, handler`,

	ListUnserved: `
SELECT event_type, handler FROM "{prefix}outbox_subscriptions"
WHERE dispatcher = ?1 AND served_time <= CAST(unixepoch('subsec') * 1000000 AS INTEGER) - ?2
ORDER BY event_type, handler`,

	MoveSubscription: `
UPDATE "{prefix}outbox_subscriptions" SET start_time = ?3, start_id = ?4, behind_time = ?5, behind_id = ?6
WHERE event_type = ?1 AND handler = ?2`,

	ForgetSubscription: `DELETE FROM "{prefix}outbox_subscriptions" WHERE event_type = ?1 AND handler = ?2`,

	SaveCounts: `
INSERT INTO "{prefix}outbox_audit" (dispatcher, bucket_time, events, offsets, offsets_events)
SELECT c.dispatcher, k.value ->> 'micros', k.value ->> 'events', k.value ->> 'offsets', k.value ->> 'offsets_events'
FROM "{prefix}outbox_cursors" AS c, json_each(?3) AS k WHERE c.dispatcher = ?1 AND c.token = ?2 AND c.owner = ?4
ON CONFLICT (dispatcher, bucket_time) DO UPDATE SET events = excluded.events, offsets = excluded.offsets, offsets_events = excluded.offsets_events`,

	LoadCounts: `
SELECT bucket_time, events, offsets, offsets_events FROM "{prefix}outbox_audit"
WHERE dispatcher = ?1 AND bucket_time >= ?2 AND bucket_time < ?3 ORDER BY bucket_time`,

	ForgetCounts: `DELETE FROM "{prefix}outbox_audit" WHERE dispatcher = ?1 AND bucket_time < ?2`,

	LoadAttempts: `
SELECT created_time, event_id, handler, attempts, last_error, next_time
FROM "{prefix}outbox_attempts" WHERE dispatcher = ?1
ORDER BY created_time, event_id, handler LIMIT ?2`,

	LoadAttempt: `
SELECT created_time, event_id, handler, attempts, last_error, next_time
FROM "{prefix}outbox_attempts"
WHERE dispatcher = ?1 AND created_time = ?2 AND event_id = ?3 AND handler = ?4`,

	// Selecting from the cursor is the fence: no row for a stale token.
	RecordFailure: `
INSERT INTO "{prefix}outbox_attempts" (dispatcher, created_time, event_id, handler, attempts, last_error, next_time)
SELECT dispatcher, ?3, ?4, ?5, ?6, ?7, CAST(unixepoch('subsec') * 1000000 AS INTEGER) + ?8
FROM "{prefix}outbox_cursors" WHERE dispatcher = ?1 AND token = ?2 AND owner = ?9
ON CONFLICT (dispatcher, created_time, event_id, handler) DO UPDATE SET
  attempts = attempts + excluded.attempts, last_error = excluded.last_error, next_time = excluded.next_time`,

	SettleAttempts: `
DELETE FROM "{prefix}outbox_attempts" WHERE dispatcher = ?1 AND (created_time, event_id, handler) IN (
  SELECT k.value ->> 'micros', k.value ->> 'id', k.value ->> 'handler'
  FROM "{prefix}outbox_cursors" AS c, json_each(?3) AS k WHERE c.dispatcher = ?1 AND c.token = ?2 AND c.owner = ?4)`,

	ForgetAttempts: `DELETE FROM "{prefix}outbox_attempts" WHERE dispatcher = ?1 AND created_time < ?2`,

	AddDeadLetter: `
INSERT INTO "{prefix}outbox_dead_letters" (dispatcher, created_time, event_id, handler, account_id,
  aggregate_type, aggregate_id, event_type, payload, attempts, last_error, state, dead_time)
SELECT dispatcher, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, CAST(unixepoch('subsec') * 1000000 AS INTEGER)
FROM "{prefix}outbox_cursors" WHERE dispatcher = ?1 AND token = ?2 AND owner = ?14
ON CONFLICT (created_time, event_id, handler) DO NOTHING`,

	ListDeadLetters: `
SELECT created_time, event_id, handler, dispatcher, account_id, aggregate_type, aggregate_id, event_type, CASE WHEN ?12 THEN x'' ELSE payload END,
  attempts, last_error, state, dead_time
FROM "{prefix}outbox_dead_letters"
WHERE ?1 = ''
  AND (?2 = '' OR dispatcher = ?2) AND (?3 = '' OR handler = ?3) AND (?4 = '' OR event_id = ?4)
  AND (?5 = '' OR event_type = ?5) AND (?6 = '' OR account_id = ?6)
  AND (?7 = '' OR aggregate_type = ?7) AND (?8 = '' OR aggregate_id = ?8)
  AND (created_time, event_id, handler) > (?9, ?10, ?11)
ORDER BY created_time, event_id, handler LIMIT ?13`,

	// The same for those in a state, which have an index: the few that are requeued
	// are looked for again and again.
	ListDeadLettersIn: `
SELECT created_time, event_id, handler, dispatcher, account_id, aggregate_type, aggregate_id, event_type, CASE WHEN ?12 THEN x'' ELSE payload END,
  attempts, last_error, state, dead_time
FROM "{prefix}outbox_dead_letters"
WHERE state = ?1
  AND (?2 = '' OR dispatcher = ?2) AND (?3 = '' OR handler = ?3) AND (?4 = '' OR event_id = ?4)
  AND (?5 = '' OR event_type = ?5) AND (?6 = '' OR account_id = ?6)
  AND (?7 = '' OR aggregate_type = ?7) AND (?8 = '' OR aggregate_id = ?8)
  AND (created_time, event_id, handler) > (?9, ?10, ?11)
ORDER BY created_time, event_id, handler LIMIT ?13`,

	GetDeadLetter: `
SELECT created_time, event_id, handler, dispatcher, account_id, aggregate_type, aggregate_id, event_type, payload,
  attempts, last_error, state, dead_time
FROM "{prefix}outbox_dead_letters"
WHERE created_time = ?1 AND event_id = ?2 AND handler = ?3`,

	MoveDeadLetter: `
UPDATE "{prefix}outbox_dead_letters" SET state = ?5, attempts = attempts + ?6, last_error = coalesce(nullif(?7, ''), last_error)
WHERE created_time = ?1 AND event_id = ?2 AND handler = ?3 AND state = ?4`,

	// In the order of the index, so that two of them lock rows in the same order.
	PurgeDeadLetters: `
DELETE FROM "{prefix}outbox_dead_letters" WHERE (created_time, event_id, handler) IN (
  SELECT created_time, event_id, handler FROM "{prefix}outbox_dead_letters"
  WHERE state IN ('replayed', 'discarded') AND dead_time < ?1
  ORDER BY state, created_time, event_id, handler LIMIT ?2)`,
}
