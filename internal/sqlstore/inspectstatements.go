package sqlstore

import "strings"

// inspectStatements are those of operators. A range goes from the first
// position, which belongs to it, to the second one.
type inspectStatements struct {
	EndOfRange   string // from time, from id, to time, to id, limit
	StartOfRange string // the same, from its end
	// from time, from id, to time, to id, id, event type, account, aggregate type, aggregate id, without payload, limit
	SelectRecords     string
	SelectRecordsBack string // the last one first
	AppliedHandlers   string // time, id
	LoadFailures      string // dispatcher, time, id
}

// forwards and backwards make a statement of one for both orders.
func forwards(text string) string  { return strings.ReplaceAll(text, "{desc}", "") }
func backwards(text string) string { return strings.ReplaceAll(text, "{desc}", " DESC") }

const (
	postgresRange = `
SELECT number, created_time, id FROM (
  SELECT row_number() OVER (ORDER BY created_time{desc}, id{desc}) AS number, created_time, id FROM (
    SELECT created_time, id FROM {schema}"{prefix}outbox"
    WHERE created_time >= $1 AND (created_time, id) >= ($1, $2) AND created_time <= $3 AND (created_time, id) < ($3, $4)
    ORDER BY created_time{desc}, id{desc} LIMIT $5
  ) AS k
) AS numbered ORDER BY number DESC LIMIT 1`

	postgresRecords = `
SELECT created_time, id, account_id, aggregate_type, aggregate_id, event_type, CASE WHEN $10::boolean THEN ''::bytea ELSE payload END
FROM {schema}"{prefix}outbox"
WHERE created_time >= $1 AND (created_time, id) >= ($1, $2) AND created_time <= $3 AND (created_time, id) < ($3, $4)
  AND ($5::text = '' OR id = $5) AND ($6::text = '' OR event_type = $6) AND ($7::text = '' OR account_id = $7)
  AND ($8::text = '' OR aggregate_type = $8) AND ($9::text = '' OR aggregate_id = $9)
ORDER BY created_time{desc}, id{desc} LIMIT $11`
)

var postgresInspect = inspectStatements{
	// Keys alone, from the index; created_time on its own is for partition
	// pruning, as in ReadAfter.
	EndOfRange:   forwards(postgresRange),
	StartOfRange: backwards(postgresRange),

	SelectRecords:     forwards(postgresRecords),
	SelectRecordsBack: backwards(postgresRecords),

	AppliedHandlers: `
SELECT handler FROM {schema}"{prefix}outbox_idempotency" WHERE created_time = $1 AND event_id = $2 ORDER BY handler`,

	LoadFailures: `
SELECT created_time, event_id, handler, attempts, last_error, next_time
FROM {schema}"{prefix}outbox_attempts" WHERE dispatcher = $1 AND created_time = $2 AND event_id = $3 ORDER BY handler`,
}

const (
	mysqlRange = `
SELECT number, CAST(created_time AS CHAR), id FROM (
  SELECT ROW_NUMBER() OVER (ORDER BY created_time{desc}, id{desc}) AS number, created_time, id FROM (
    SELECT created_time, id FROM {prefix}outbox
    WHERE created_time >= ?1 AND (created_time > ?1 OR id >= ?2) AND created_time <= ?3 AND (created_time < ?3 OR id < ?4)
    ORDER BY created_time{desc}, id{desc} LIMIT ?5
  ) AS k
) AS numbered ORDER BY number DESC LIMIT 1`

	mysqlRecords = `
SELECT CAST(created_time AS CHAR), id, account_id, aggregate_type, aggregate_id, event_type, CASE WHEN ?10 THEN '' ELSE payload END
FROM {prefix}outbox AS e
WHERE created_time >= ?1 AND (created_time > ?1 OR id >= ?2) AND created_time <= ?3 AND (created_time < ?3 OR id < ?4)
  AND (LENGTH(?5) = 0 OR CAST(id AS BINARY) = ?5) AND (LENGTH(?6) = 0 OR CAST(event_type AS BINARY) = ?6)
  AND (LENGTH(?7) = 0 OR CAST(account_id AS BINARY) = ?7) AND (LENGTH(?8) = 0 OR CAST(aggregate_type AS BINARY) = ?8)
  AND (LENGTH(?9) = 0 OR CAST(aggregate_id AS BINARY) = ?9)
ORDER BY e.created_time{desc}, e.id{desc} LIMIT ?11`
)

var mysqlInspect = inspectStatements{
	EndOfRange:   forwards(mysqlRange),
	StartOfRange: backwards(mysqlRange),

	// A collation pads what it compares, as in ListDeadLetters.
	SelectRecords:     forwards(mysqlRecords),
	SelectRecordsBack: backwards(mysqlRecords),

	AppliedHandlers: `
SELECT handler FROM {prefix}outbox_idempotency WHERE created_time = ?1 AND event_id = ?2 ORDER BY handler`,

	LoadFailures: `
SELECT CAST(created_time AS CHAR), event_id, handler, attempts, last_error, CAST(next_time AS CHAR)
FROM {prefix}outbox_attempts WHERE dispatcher = ?1 AND created_time = ?2 AND event_id = ?3 ORDER BY handler`,
}

const (
	sqliteRange = `
SELECT number, created_time, id FROM (
  SELECT row_number() OVER (ORDER BY created_time{desc}, id{desc}) AS number, created_time, id FROM (
    SELECT created_time, id FROM "{prefix}outbox"
    WHERE (created_time, id) >= (?1, ?2) AND (created_time, id) < (?3, ?4)
    ORDER BY created_time{desc}, id{desc} LIMIT ?5
  ) AS k
) AS numbered ORDER BY number DESC LIMIT 1`

	sqliteRecords = `
SELECT created_time, id, account_id, aggregate_type, aggregate_id, event_type, CASE WHEN ?10 THEN x'' ELSE payload END
FROM "{prefix}outbox"
WHERE (created_time, id) >= (?1, ?2) AND (created_time, id) < (?3, ?4)
  AND (?5 = '' OR id = ?5) AND (?6 = '' OR event_type = ?6) AND (?7 = '' OR account_id = ?7)
  AND (?8 = '' OR aggregate_type = ?8) AND (?9 = '' OR aggregate_id = ?9)
ORDER BY created_time{desc}, id{desc} LIMIT ?11`
)

var sqliteInspect = inspectStatements{
	EndOfRange:   forwards(sqliteRange),
	StartOfRange: backwards(sqliteRange),

	SelectRecords:     forwards(sqliteRecords),
	SelectRecordsBack: backwards(sqliteRecords),

	AppliedHandlers: `
SELECT handler FROM "{prefix}outbox_idempotency" WHERE created_time = ?1 AND event_id = ?2 ORDER BY handler`,

	LoadFailures: `
SELECT created_time, event_id, handler, attempts, last_error, next_time
FROM "{prefix}outbox_attempts" WHERE dispatcher = ?1 AND created_time = ?2 AND event_id = ?3 ORDER BY handler`,
}
