package sqlstore

// One statement, so one snapshot: the number of rows up to what the reader
// has counted, in place of an id; keys up to its frontier, which have an
// empty event type; and whole rows after it. The rows at the ends are
// counted apart, since it costs a fifth to compare the id of each.
const mysqlReadWindow rowsStatement = `
SELECT CASE WHEN @@global.read_only THEN 0 ELSE @@server_id + 1 END, NULL, CAST(
    (SELECT COUNT(*) FROM {prefix}outbox WHERE created_time > ?1 AND created_time < ?3)
    + (SELECT COUNT(*) FROM {prefix}outbox WHERE created_time = ?1 AND id > ?2 AND created_time < ?3)
    + (SELECT COUNT(*) FROM {prefix}outbox WHERE created_time = ?3 AND id <= ?4 AND created_time > ?1)
  AS CHAR), CAST(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) AS CHAR), '', '', '', NULL
UNION ALL
(SELECT CASE WHEN @@global.read_only THEN 0 ELSE @@server_id + 1 END, CAST(created_time AS CHAR), id, '', '', '', '', NULL
 FROM {prefix}outbox
 WHERE created_time >= ?3 AND (created_time > ?3 OR id > ?4) AND created_time <= ?5 AND (created_time < ?5 OR id <= ?6)
 ORDER BY created_time, id LIMIT ?8)
UNION ALL
(SELECT CASE WHEN @@global.read_only THEN 0 ELSE @@server_id + 1 END, CAST(created_time AS CHAR), id, account_id, aggregate_type, aggregate_id, event_type, {payload}
 FROM {prefix}outbox
 WHERE created_time >= ?5 AND (created_time > ?5 OR id > ?6)
 ORDER BY created_time, id LIMIT ?7)`

// Of each key the row, as long as those before it have no more bytes than is
// asked for. The order of the joins keeps the optimizer from reading the table
// from end to end, to join it with a few keys, and LIMIT from taking payloads
// along to where sizes are added up.
const mysqlReadKeys rowsStatement = `
SELECT CASE WHEN @@global.read_only THEN 0 ELSE @@server_id + 1 END, CAST(e.created_time AS CHAR), e.id, e.account_id, e.aggregate_type, e.aggregate_id, e.event_type, {payload}
FROM (
  SELECT created_time, id, SUM(size) OVER (ORDER BY created_time, id) - size AS before_it
  FROM (
    SELECT o.created_time, o.id, LENGTH(o.payload) AS size
    FROM JSON_TABLE(?1, '$[*]' COLUMNS (at DATETIME(6) PATH '$.at', id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin PATH '$.id')) AS k
    STRAIGHT_JOIN {prefix}outbox AS o ON o.created_time = k.at AND o.id = k.id
    LIMIT 1000000
  ) AS o
) AS s
STRAIGHT_JOIN {prefix}outbox AS e ON e.created_time = s.created_time AND e.id = s.id
WHERE s.before_it < ?2
ORDER BY s.created_time, s.id`
