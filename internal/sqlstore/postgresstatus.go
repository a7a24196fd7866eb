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
	// process; its lock names it by its id. What sessions of others do is told to
	// some roles only.
	Producers: `
SELECT timestamptz 'epoch' + min(k.ms) * interval '1 millisecond', coalesce(l.pid, 0), coalesce(min(a.application_name), ''),
  coalesce(min(a.state), ''), coalesce(min(p.gid), '')
FROM pg_locks AS l
CROSS JOIN LATERAL (SELECT (l.classid::bigint & 4095) << 32 | l.objid::bigint) AS k(ms)
LEFT JOIN pg_stat_activity AS a ON a.pid = l.pid
LEFT JOIN pg_prepared_xacts AS p ON l.pid IS NULL AND p.transaction::text = split_part(l.virtualtransaction, '/', 2)
WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.mode = 'ShareLock'
  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND l.classid::bigint >> 12 = '{schema}"{prefix}outbox"'::regclass::oid::bigint & 524287
  AND k.ms BETWEEN 1577836800000 AND extract(epoch FROM statement_timestamp()) * 1000
GROUP BY l.pid, l.virtualtransaction
ORDER BY 1, 2 LIMIT $1`,
}
