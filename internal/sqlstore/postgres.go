package sqlstore

import (
	"time"

	"github.com/onward-go/outbox/schema"
)

// Postgres is PostgreSQL 15 and newer.
var Postgres = &Dialect{
	Name:                schema.Postgres,
	encodeTime:          func(t time.Time) any { return t.UTC() },
	newSafeMark:         func() markReader { return holdoutMark },
	judge:               judgePostgres,
	partitions:          postgresPartitions{},
	partitionsAreTables: true,
	watchesTables:       true,
	advise:              postgresAdvice,
	AbortsOnError:       true,
	isRace: func(err error) bool {
		switch sqlState(err) {
		case "40P01", // deadlock
			"40001", // serialization failure
			"42P01", // the partition is gone
			"55000", // it is being detached, or is not any more
			"XX000": // its row in the catalog has changed meanwhile
			return true
		}
		return false
	},
	isTransient:     postgresIsTransient,
	lacksPrivilege:  func(err error) bool { return sqlState(err) == "42501" },
	listsKnown:      true,
	isTaken:         func(err error) bool { return sqlState(err) == "23505" }, // unique violation
	setsTransaction: true,
	tellsLife:       true,
	isAnotherLife:   func(err error) bool { return sqlState(err) == "23502" }, // a column is NULL
	namesHoldouts:   true,
	lostConnection:  "conn closed",
	isLockTimeout:   func(err error) bool { return sqlState(err) == "55P03" || sqlState(err) == "40P01" },
	statements: statements{
		// Lock first, stamp after. The lock's key is the table's namespace and
		// the millisecond in which the transaction began, so a transaction
		// holds one key however often it publishes. CASE evaluates what it
		// returns when it has evaluated what it asks, which holds: the lock's
		// result is void.
		AppendRecord: `
INSERT INTO {schema}"{prefix}outbox" (id, account_id, aggregate_type, aggregate_id, event_type, payload, created_time)
VALUES ($1::text, $2::text, $3::text, $4::text, $5::text, $6::bytea, CASE WHEN pg_advisory_xact_lock_shared(
    ('{schema}"{prefix}outbox"'::regclass::oid::bigint & 524287) << 44 | floor(extract(epoch FROM now()) * 1000)::bigint
  )::text = '' THEN clock_timestamp() END)`,

		// The same for many. MATERIALIZED keeps the planner from stamping before
		// it locks. They are numbered, since clock_timestamp() may stand still
		// between two of them.
		AppendRecords: `
WITH fence AS MATERIALIZED (
  SELECT pg_advisory_xact_lock_shared(
    ('{schema}"{prefix}outbox"'::regclass::oid::bigint & 524287) << 44 | floor(extract(epoch FROM now()) * 1000)::bigint)
), stamp AS MATERIALIZED (
  SELECT clock_timestamp() AS first FROM fence
)
INSERT INTO {schema}"{prefix}outbox" (id, account_id, aggregate_type, aggregate_id, event_type, payload, created_time)
SELECT r.id, r.account_id, r.aggregate_type, r.aggregate_id, r.event_type,
  substring($2::bytea FROM r.start + 1 FOR r.size),
  stamp.first + (r.number - 1) * interval '1 microsecond'
FROM stamp, ROWS FROM (json_to_recordset($1::json) AS (
    id text, account_id text, aggregate_type text, aggregate_id text, event_type text, start integer, size integer)
  ) WITH ORDINALITY AS r(id, account_id, aggregate_type, aggregate_id, event_type, start, size, number)`,

		// The lowest key that a producer holds. It must be a statement of its
		// own, before the rows and in an older snapshot: PostgreSQL makes a
		// transaction visible before it releases its locks, so a lock not seen
		// here means rows visible to the next snapshot, or a stamp still to
		// come, above the mark. Keys outside 2020 to now are not a producer's.
		//
		// Holdouts are the producers that are older than a quarter of a second,
		// by their transaction ids. A lock has the lower half of one: the upper
		// is that of the snapshot, or its neighbour's.
		SafeMark: `
WITH holder AS MATERIALIZED (
  SELECT min(k.ms) AS ms, min(l.transactionid::text::bigint) FILTER (WHERE l.mode = 'ExclusiveLock' AND l.granted) AS xid
  FROM pg_locks l
  LEFT JOIN LATERAL (SELECT (l.classid::bigint & 4095) << 32 | l.objid::bigint) AS k(ms)
    ON l.locktype = 'advisory' AND l.objsubid = 1 AND l.mode = 'ShareLock'
    AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND l.classid::bigint >> 12 = '{schema}"{prefix}outbox"'::regclass::oid::bigint & 524287
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
LEFT JOIN producer ON true`,

		// created_time >= is for partition pruning, which does not see the row
		// comparison; the row comparison is for the index. The outer join
		// makes the server tell who it is even when there is no row. Row-level
		// security may be turned on at any time, so each read says whether it hides
		// rows.
		ReadAfter: `
SELECT s.server, e.created_time, coalesce(e.id, ''), coalesce(e.account_id, ''), coalesce(e.aggregate_type, ''),
  coalesce(e.aggregate_id, ''), coalesce(e.event_type, ''), e.payload
FROM (SELECT CASE WHEN pg_is_in_recovery() THEN 0 WHEN (SELECT row_security_active('{schema}"{prefix}outbox"')) THEN -2
    ELSE (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint END AS server) AS s
LEFT JOIN LATERAL (
  SELECT * FROM {schema}"{prefix}outbox"
  WHERE created_time >= $1 AND (created_time, id) > ($1, $2) AND created_time < $3
  ORDER BY created_time, id LIMIT $4
) AS e ON true`,

		ReadWindow:      postgresReadWindow.whole(),
		ReadWindowHeads: postgresReadWindow.heads(),

		ReadKeys:      postgresReadKeys.whole(),
		ReadKeysHeads: postgresReadKeys.heads(),

		CountRows: `
SELECT date_bin($3::bigint * interval '1 microsecond', created_time, timestamptz 'epoch') AS bucket, count(*),
  sum((extract(epoch FROM created_time) * 1000000)::bigint % $3::bigint)::bigint
FROM {schema}"{prefix}outbox" WHERE created_time >= $1 AND created_time < $2
GROUP BY bucket ORDER BY bucket`,

		// It costs a tenth of a handler's transaction less than RecordMarker: there is
		// no speculation, and next to nothing to evaluate. Each function of a
		// statement is looked up whenever that is executed.
		InsertMarker:               insertMarker(limitIdle("$4")),
		InsertMarkerAsynchronously: insertMarker(limitIdle("$4") + ` || ` + commitAsynchronously),

		// ON CONFLICT waits for a racing twin and leaves the transaction
		// usable; nothing but the conflict itself yields no row. The settings
		// are an expression of a value: a subquery of their own would cost as much
		// as the rest. In another life of the server the value is NULL, which the
		// table refuses.
		RecordMarker: `
INSERT INTO {schema}"{prefix}outbox_idempotency" (created_time, event_id, handler)
VALUES ($1::timestamptz, $2::text, CASE WHEN ` + inPostgresLife("$5", "$6") + `
  THEN concat($3::text, ` + settings("$4", "$7") + `) END)
ON CONFLICT (created_time, event_id, handler) DO NOTHING`,

		// What sets the transaction is left out unless it is read. Seldom does one
		// exist already, so those are what it yields; EXCEPT finds them by hashing,
		// however wrong the planner is about the length of an array.
		RecordMarkers: `
WITH settings AS MATERIALIZED (SELECT CASE WHEN ` + inPostgresLife("$5", "$6") + `
  THEN concat(` + settings("$4", "$7") + `) END AS nothing),
k AS MATERIALIZED (
  SELECT timestamptz 'epoch' + k.micros * interval '1 microsecond' AS created_time, k.id, k.handler
  FROM unnest($1::text::bigint[], $2::text::text[], $3::text::text[]) AS k(micros, id, handler)
), recorded AS (
  INSERT INTO {schema}"{prefix}outbox_idempotency" (created_time, event_id, handler)
  SELECT k.created_time, k.id, k.handler || settings.nothing FROM settings, k
  ON CONFLICT (created_time, event_id, handler) DO NOTHING
  RETURNING created_time, event_id, handler
)
SELECT created_time, id, handler FROM k EXCEPT SELECT created_time, event_id, handler FROM recorded`,

		AppliedMarkers: `
SELECT k.number
FROM ROWS FROM (json_to_recordset($1::json) AS (micros bigint, id text, handler text)) WITH ORDINALITY AS k(micros, id, handler, number)
CROSS JOIN LATERAL (
  SELECT FROM {schema}"{prefix}outbox_idempotency"
  WHERE created_time = timestamptz 'epoch' + k.micros * interval '1 microsecond' AND event_id = k.id AND handler = k.handler LIMIT 1
) AS m`,

		// Like RecordMarker. The order is the one in which everybody takes the
		// keys.
		ReserveKeys: `
INSERT INTO {schema}"{prefix}outbox_dedup" (account_id, dedup_key, created_time)
SELECT k.account_id, k.key, clock_timestamp()
FROM ROWS FROM (json_to_recordset($1::json) AS (account_id text, key text)) WITH ORDINALITY AS k(account_id, key, number)
ORDER BY k.number
ON CONFLICT (account_id, dedup_key) DO NOTHING
RETURNING account_id, dedup_key`,

		ReleaseKeys: `
DELETE FROM {schema}"{prefix}outbox_dedup" AS d
USING json_to_recordset($1::json) AS k(account_id text, key text)
WHERE d.account_id = k.account_id AND d.dedup_key = k.key`,

		// Nobody waits for a publisher, nor for another replica. MATERIALIZED keeps the
		// planner from looking for old ones again for each row, which would skip those
		// that it has locked and find others, beyond the limit.
		PurgeKeys: `
WITH old AS MATERIALIZED (
  SELECT account_id, dedup_key FROM {schema}"{prefix}outbox_dedup"
  WHERE created_time < $1 ORDER BY created_time LIMIT $2 FOR UPDATE SKIP LOCKED
)
DELETE FROM {schema}"{prefix}outbox_dedup" AS d USING old
WHERE d.account_id = old.account_id AND d.dedup_key = old.dedup_key`,

		sidecarStatements: postgresSidecar,
		inspectStatements: postgresInspect,
		statusStatements:  postgresStatus,

		OutboxTable: `{schema}"{prefix}outbox"`,
		MarkerTable: `{schema}"{prefix}outbox_idempotency"`,

		NextEvent: `
SELECT created_time, id FROM {schema}"{prefix}outbox"
WHERE created_time >= $1 AND (created_time, id) > ($1, $2) AND created_time < $3
ORDER BY created_time, id LIMIT 1`,

		partitionStatements: partitionStatements{
			// The server writes bounds in the session's style, of which only ISO names a
			// time zone by its offset: it is set for this statement, before the bounds
			// are asked for. They are asked for without the table's oid: with it, the
			// server looks into the newest catalog for the table, and one that another
			// replica has dropped since the snapshot would have none. OFFSET 0 keeps
			// them from being asked for twice.
			ListPartitions: `
WITH style AS MATERIALIZED (SELECT set_config('DateStyle', 'ISO', true) AS name)
SELECT c.relname, format('%I.%I', n.nspname, c.relname),
  substring(b.bound FROM 'FROM [(]''([^'']+)''[)]')::timestamptz, substring(b.bound FROM 'TO [(]''([^'']+)''[)]')::timestamptz,
  i.inhdetachpending, b.bound = 'DEFAULT'
FROM style, pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid JOIN pg_namespace AS n ON n.oid = c.relnamespace,
  LATERAL (SELECT CASE WHEN style.name <> '' THEN pg_get_expr(c.relpartbound, 0) END AS bound OFFSET 0) AS b
WHERE i.inhparent = $1::text::regclass AND b.bound IS NOT NULL`,

			LastStamp: `SELECT max(created_time) FROM <partition>`,

			TableHolders: `
SELECT virtualtransaction FROM pg_locks
WHERE locktype = 'relation' AND relation = $1::text::regclass AND granted AND pid <> pg_backend_pid()
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`,

			LimitWaits:      `SELECT set_config('lock_timeout', $1, true), set_config('idle_in_transaction_session_timeout', $2, true)`,
			LimitStatements: `SELECT set_config('statement_timeout', $1, true)`,
			LockTable:       `LOCK TABLE ONLY <table> IN ACCESS EXCLUSIVE MODE`,
			DetachPartition: `ALTER TABLE <table> DETACH PARTITION <partition>`,
			RenamePartition: `ALTER TABLE <partition> RENAME TO "<name>"`,
			AttachPartition: `ALTER TABLE <table> ATTACH PARTITION {schema}"<name>" FOR VALUES FROM ('<from> UTC') TO ('<to> UTC')`,
			CreatePartition: `CREATE TABLE {schema}"<name>" PARTITION OF <table> FOR VALUES FROM ('<from> UTC') TO ('<to> UTC')`,
			CreateLast:      `CREATE TABLE {schema}"<name>" PARTITION OF <table> FOR VALUES FROM ('<from> UTC') TO (MAXVALUE)`,

			// What proves the new bounds, so that ATTACH need not look at the
			// rows.
			BoundPartition: `
ALTER TABLE <partition> DROP CONSTRAINT IF EXISTS outbox_closed,
  ADD CONSTRAINT outbox_closed CHECK (created_time >= '<from> UTC' AND created_time < '<to> UTC') NOT VALID`,
			LastBound: `
WITH style AS MATERIALIZED (SELECT set_config('DateStyle', 'ISO', true) AS name)
SELECT substring(CASE WHEN style.name <> '' THEN pg_get_constraintdef(c.oid) END FROM '< ''([^'']+)''')::timestamptz
FROM style, pg_constraint AS c WHERE c.conrelid = $1::text::regclass AND c.conname = 'outbox_closed'`,
			ValidateBound:    `ALTER TABLE <partition> VALIDATE CONSTRAINT outbox_closed`,
			UnboundPartition: `ALTER TABLE <partition> DROP CONSTRAINT IF EXISTS outbox_closed`,
			UnboundAttached:  `ALTER TABLE {schema}"<name>" DROP CONSTRAINT IF EXISTS outbox_closed`,

			// A table's name is that of a type, too.
			TakenNames: `
SELECT 1 FROM (
  SELECT relname AS name, relnamespace AS namespace FROM pg_class UNION ALL SELECT typname, typnamespace FROM pg_type
) AS o JOIN pg_namespace AS n ON n.oid = o.namespace
WHERE o.name = $2::text
  AND (n.nspname = current_schema() OR n.oid = (SELECT relnamespace FROM pg_class WHERE oid = $1::text::regclass))
LIMIT 1`,

			FinishDetach:  `ALTER TABLE <table> DETACH PARTITION <partition> FINALIZE`,
			UnmarkDropped: `COMMENT ON TABLE <partition> IS NULL`,
			ListMarked: `
SELECT c.relname, format('%I.%I', n.nspname, c.relname)
FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace JOIN pg_class AS parent ON parent.relnamespace = n.oid
LEFT JOIN pg_inherits AS i ON i.inhrelid = c.oid AND i.inhparent = parent.oid
WHERE parent.oid = $1::text::regclass AND c.relkind = 'r' AND c.relispartition = $2::boolean
  AND coalesce(NOT i.inhdetachpending, false) = $2::boolean
  AND obj_description(c.oid, 'pg_class') = 'retention drops this partition of ' || parent.relname`,

			// Its own constraints do not keep it.
			Dependents: `
SELECT DISTINCT pg_describe_object(d.classid, d.objid, d.objsubid)
FROM pg_depend AS d LEFT JOIN pg_constraint AS own ON d.classid = 'pg_constraint'::regclass AND own.oid = d.objid AND own.conrelid = d.refobjid
WHERE d.refclassid = 'pg_class'::regclass AND d.deptype = 'n' AND own.oid IS NULL
  AND d.refobjid IN (SELECT $1::text::regclass UNION ALL SELECT indexrelid FROM pg_index WHERE indrelid = $1::text::regclass)
ORDER BY 1`,

			DropTable: `DROP TABLE IF EXISTS <partition>`,
		},

		// A missing variable would be an error and abort the transaction, so
		// only what is everywhere is asked for.
		DescribeServer: `
SELECT 'version', version()
UNION ALL
SELECT 'advisory locks', count(*)::text FROM pg_catalog.pg_proc WHERE proname = 'pg_advisory_xact_lock_shared'
UNION ALL
SELECT name, current_setting(name) FROM unnest(ARRAY['client_encoding', 'DateStyle', 'bytea_output']) AS s(name)`,

		// Whether the driver, in the mode that it is in, can read what the session
		// writes.
		ProbeFormat:      `SELECT timestamptz '2026-03-29 01:59:59+00', decode('00', 'hex')`,
		SessionIdleLimit: `SELECT coalesce(reset_val, '0') FROM pg_catalog.pg_settings WHERE name = 'idle_in_transaction_session_timeout'`,

		// A policy of a partition counts only for those who read that by its name, as
		// retention does. A rule that runs in place of a statement, a view and a
		// temporary table of the session hide what is written, and a crash empties an
		// unlogged table.
		DescribeTables: `
WITH named AS MATERIALIZED (
  SELECT to_regclass(t.name)::oid AS oid, t.name IN ('{schema}"{prefix}outbox"', '{schema}"{prefix}outbox_idempotency"') AS partitioned
  FROM unnest(ARRAY['{schema}"{prefix}outbox_schema"', '{schema}"{prefix}outbox"', '{schema}"{prefix}outbox_idempotency"',
    '{schema}"{prefix}outbox_dedup"', '{schema}"{prefix}outbox_cursors"', '{schema}"{prefix}outbox_subscriptions"',
    '{schema}"{prefix}outbox_audit"', '{schema}"{prefix}outbox_attempts"', '{schema}"{prefix}outbox_dead_letters"']) AS t(name)
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
FROM named JOIN pg_class AS c ON c.oid = named.oid WHERE c.relkind NOT IN ('r', 'p') OR c.relpersistence <> 'p'`,

		FindSchema:     `SELECT 1 WHERE to_regclass('{schema}"{prefix}outbox_schema"') IS NOT NULL`,
		SchemaVersions: `SELECT version FROM {schema}"{prefix}outbox_schema"`,

		// A snapshot from before the lock would not see what the replica that
		// held it has made.
		IsolateMigrations: `SET TRANSACTION ISOLATION LEVEL READ COMMITTED`,
		// Released with the migration's transaction.
		LockMigrations: `SELECT pg_advisory_xact_lock(hashtext('{schema}"{prefix}outbox_schema"'), 0)`,
	},
}

// insertMarker writes a marker that is new, with expressions that yield empty text. In
// another life of the server it writes NULL, which the table refuses.
func insertMarker(settings string) string {
	return `
INSERT INTO {schema}"{prefix}outbox_idempotency" (created_time, event_id, handler)
VALUES ($1::timestamptz, $2::text, CASE WHEN ` + inPostgresLife("$5", "$6") + `
  THEN ` + settings + ` || $3::text END)`
}

// settings are expressions that set the transaction, and yield nothing.
func settings(idle, asynchronous string) string {
	return unlessEmpty(idle, limitIdle(idle)) + `, ` + unlessEmpty(asynchronous, commitAsynchronously)
}

// unlessEmpty is an expression that is evaluated if a parameter is not empty.
func unlessEmpty(param, expression string) string {
	return `CASE WHEN ` + param + `::text <> '' THEN ` + expression + ` END`
}

// limitIdle is an expression that limits how long the transaction may stand idle, in
// ms, and yields empty text.
func limitIdle(param string) string {
	return `left(set_config('idle_in_transaction_session_timeout', ` + param + `::text, true), 0)`
}

// commitAsynchronously is an expression that lets the transaction commit before it is
// on disk, and yields empty text.
const commitAsynchronously = `left(set_config('synchronous_commit', 'off', true), 0)`
