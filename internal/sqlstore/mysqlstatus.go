package sqlstore

// mysqlStatus is what MySQL and MariaDB are asked for an operator.
var mysqlStatus = statusStatements{
	CountAfter: `
SELECT COUNT(*) FROM (
  SELECT 1 FROM {prefix}outbox WHERE created_time >= ?1 AND (created_time > ?1 OR id > ?2)
  ORDER BY created_time, id LIMIT ?3) AS n`,

	CountAttempts: `
SELECT COUNT(*) FROM (SELECT 1 FROM {prefix}outbox_attempts WHERE dispatcher = ?1 LIMIT ?2) AS n`,

	// Each state on its own, since the index of states finds it and the limit ends
	// it.
	CountLetters: `
SELECT dispatcher, state, COUNT(*) FROM (
  (SELECT dispatcher, state FROM {prefix}outbox_dead_letters WHERE state = 'dead' LIMIT ?1)
  UNION ALL (SELECT dispatcher, state FROM {prefix}outbox_dead_letters WHERE state = 'requeued' LIMIT ?1)
  UNION ALL (SELECT dispatcher, state FROM {prefix}outbox_dead_letters WHERE state = 'replayed' LIMIT ?1)
  UNION ALL (SELECT dispatcher, state FROM {prefix}outbox_dead_letters WHERE state = 'discarded' LIMIT ?1)
) AS l GROUP BY dispatcher, state`,

	// Who holds rows of the fence, on MySQL. Not everybody may ask. A transaction
	// that is not instrumented has no known beginning.
	Producers: `
SELECT CAST(UTC_TIMESTAMP(6) - INTERVAL MAX(x.timer_wait) DIV 1000000 MICROSECOND AS CHAR), COALESCE(t.processlist_id, 0),
  COALESCE(CONCAT(t.processlist_user, '@', t.processlist_host), ''), COALESCE(t.processlist_command, ''), ''
FROM performance_schema.data_locks AS l
JOIN performance_schema.threads AS t ON t.thread_id = l.thread_id
LEFT JOIN performance_schema.events_transactions_current AS x ON x.thread_id = l.thread_id AND x.state = 'ACTIVE'
WHERE l.object_schema = DATABASE() AND l.object_name = '{prefix}outbox_fence' AND l.lock_type = 'RECORD' AND l.lock_mode LIKE 'S%'
GROUP BY t.thread_id, t.processlist_id, t.processlist_user, t.processlist_host, t.processlist_command
ORDER BY 1, 2 LIMIT ?1`,

	// MariaDB does not tell who holds a row. It tells which transactions of the
	// database have locked and written rows, of which a producer is one. Their
	// times are local to the server.
	Suspects: `
SELECT CAST(CONVERT_TZ(t.trx_started, 'SYSTEM', '+00:00') AS CHAR), t.trx_mysql_thread_id, CONCAT(p.user, '@', p.host), p.command, ''
FROM information_schema.innodb_trx AS t JOIN information_schema.processlist AS p ON p.id = t.trx_mysql_thread_id
WHERE p.db = DATABASE() AND p.id <> CONNECTION_ID() AND t.trx_rows_modified > 0 AND t.trx_rows_locked > 0
ORDER BY 1, 2 LIMIT ?1`,

	// As text, since PostgreSQL's infinity is no time that a driver can read.
	EventAhead: `
SELECT id, CAST(created_time AS CHAR) FROM {prefix}outbox
WHERE created_time > UTC_TIMESTAMP(6) + INTERVAL 1 HOUR ORDER BY created_time DESC, id DESC LIMIT 1`,

	ProbeSession: `
SELECT CAST(UTC_TIMESTAMP(6) AS CHAR), NOT @@global.read_only, TRUE, CAST(CAST(?1 AS DATETIME(6)) AS CHAR)`,

	// What is granted to the user itself, for all databases, this one or the table;
	// the name of a database may be a pattern. Who has roles is not judged: the
	// server does not tell everybody what they contain.
	LackedByRetention: `
SELECT t.name, n.privilege
FROM (SELECT '{prefix}outbox' AS name UNION ALL SELECT '{prefix}outbox_idempotency') AS t
CROSS JOIN (SELECT 'ALTER' AS privilege UNION ALL SELECT 'CREATE' UNION ALL SELECT 'DROP' UNION ALL SELECT 'INSERT') AS n
CROSS JOIN (SELECT CONCAT('''', REPLACE(CURRENT_USER(), '@', '''@'''), '''') AS name) AS u
WHERE NOT EXISTS (SELECT 1 FROM information_schema.enabled_roles WHERE role_name IS NOT NULL AND role_name <> 'NONE')
  AND NOT EXISTS (SELECT 1 FROM information_schema.user_privileges AS g WHERE g.grantee = u.name AND g.privilege_type = n.privilege)
  AND NOT EXISTS (SELECT 1 FROM information_schema.schema_privileges AS g
    WHERE g.grantee = u.name AND g.privilege_type = n.privilege AND DATABASE() LIKE g.table_schema)
  AND NOT EXISTS (SELECT 1 FROM information_schema.table_privileges AS g
    WHERE g.grantee = u.name AND g.privilege_type = n.privilege AND g.table_schema = DATABASE() AND g.table_name = t.name)
ORDER BY 1, 2`,
}
