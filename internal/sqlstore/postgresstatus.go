package sqlstore

// postgresStatus is what PostgreSQL is asked for an operator.
var postgresStatus = statusStatements{
	// created_time >= is for partition pruning. The order makes the planner go
	// along the index, not from the beginning of the table.
	CountAfter: `
SELECT count(*) FROM (
  SELECT 1 FROM {schema}"{prefix}outbox" WHERE created_time >= $1 AND (created_time, id) > ($1, $2)
  ORDER BY created_time, id LIMIT $3) AS n`,

	CountAttempts: `
SELECT count(*) FROM (SELECT 1 FROM {schema}"{prefix}outbox_attempts" WHERE dispatcher = $1 LIMIT $2) AS n`,

	// Each state on its own, since the index of states finds it and the limit ends
	// it.
	CountLetters: `
SELECT l.dispatcher, s.state, count(*)
FROM unnest(ARRAY['dead', 'requeued', 'replayed', 'discarded']) AS s(state)
CROSS JOIN LATERAL (
  SELECT dispatcher FROM {schema}"{prefix}outbox_dead_letters" WHERE state = s.state LIMIT $1
) AS l
GROUP BY l.dispatcher, s.state`,

	// Who holds the keys that SafeMark looks at. A prepared transaction has no
	// process, but a lock on its id. What sessions of others do is told to some
	// roles only.
	Producers: `
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
  AND l.classid::bigint >> 12 = '{schema}"{prefix}outbox"'::regclass::oid::bigint & 524287
  AND k.ms BETWEEN 1577836800000 AND extract(epoch FROM statement_timestamp()) * 1000
GROUP BY l.pid, l.virtualtransaction
ORDER BY 1, 2 LIMIT $1`,

	// As text, since PostgreSQL's infinity is no time that a driver can read.
	EventAhead: `
SELECT id, created_time::text FROM {schema}"{prefix}outbox"
WHERE created_time > clock_timestamp() + interval '1 hour' ORDER BY created_time DESC, id DESC LIMIT 1`,

	ProbeSession: `
SELECT clock_timestamp(), NOT pg_is_in_recovery(), current_setting('transaction_read_only') = 'off', $1::timestamptz`,

	// DDL is the owner's. A partition is a table of its own.
	LackedByRetention: `
SELECT c.oid::regclass::text, 'ownership'
FROM pg_class AS c
WHERE c.oid IN (SELECT t.oid FROM unnest(ARRAY['{schema}"{prefix}outbox"'::regclass, '{schema}"{prefix}outbox_idempotency"'::regclass]) AS p(oid),
    LATERAL (SELECT p.oid UNION ALL SELECT inhrelid FROM pg_inherits WHERE inhparent = p.oid) AS t(oid))
  AND NOT pg_has_role(c.relowner, 'USAGE')
UNION ALL
SELECT n.nspname::text, 'CREATE' FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.oid = '{schema}"{prefix}outbox"'::regclass AND NOT has_schema_privilege(n.oid, 'CREATE')
ORDER BY 1`,
}
