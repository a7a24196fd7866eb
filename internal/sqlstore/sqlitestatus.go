package sqlstore

// sqliteStatus is what SQLite is asked for an operator. No producer holds its
// mark.
var sqliteStatus = statusStatements{
	CountAfter: `
SELECT count(*) FROM (
  SELECT 1 FROM "{prefix}outbox" WHERE (created_time, id) > (?1, ?2) ORDER BY created_time, id LIMIT ?3)`,

	CountAttempts: `
SELECT count(*) FROM (SELECT 1 FROM "{prefix}outbox_attempts" WHERE dispatcher = ?1 LIMIT ?2)`,

	// Each state on its own, since the index of states finds it and the limit ends
	// it.
	CountLetters: `
SELECT dispatcher, state, count(*) FROM (
  SELECT * FROM (SELECT dispatcher, state FROM "{prefix}outbox_dead_letters" WHERE state = 'dead' LIMIT ?1)
  UNION ALL SELECT * FROM (SELECT dispatcher, state FROM "{prefix}outbox_dead_letters" WHERE state = 'requeued' LIMIT ?1)
  UNION ALL SELECT * FROM (SELECT dispatcher, state FROM "{prefix}outbox_dead_letters" WHERE state = 'replayed' LIMIT ?1)
  UNION ALL SELECT * FROM (SELECT dispatcher, state FROM "{prefix}outbox_dead_letters" WHERE state = 'discarded' LIMIT ?1)
) GROUP BY dispatcher, state`,

	// As text, since PostgreSQL's infinity is no time that a driver can read.
	EventAhead: `
SELECT id, strftime('%Y-%m-%d %H:%M:%S', created_time / 1000000, 'unixepoch') FROM "{prefix}outbox"
WHERE created_time > (unixepoch() + 3600) * 1000000 ORDER BY created_time DESC, id DESC LIMIT 1`,

	ProbeSession: `
SELECT CAST(unixepoch('subsec') * 1000000 AS INTEGER), 1, (SELECT query_only = 0 FROM pragma_query_only), ?1`,
}
