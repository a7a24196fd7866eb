package sqlstore

// The number of rows up to what the reader has counted, in place of an
// id; keys up to its frontier, which have an empty event type; and whole
// rows after it.
const sqliteReadWindow rowsStatement = `
SELECT 1, NULL, count(*), CAST(unixepoch('subsec') * 1000000 AS INTEGER), '', '', '', NULL
FROM "{prefix}outbox" WHERE (created_time, id) > (?1, ?2) AND (created_time, id) <= (?3, ?4)
UNION ALL
SELECT * FROM (SELECT 1, created_time, id, '', '', '', '', NULL
  FROM "{prefix}outbox" WHERE (created_time, id) > (?3, ?4) AND (created_time, id) <= (?5, ?6)
  ORDER BY created_time, id LIMIT ?8)
UNION ALL
SELECT * FROM (SELECT 1, created_time, id, account_id, aggregate_type, aggregate_id, event_type, {payload}
  FROM "{prefix}outbox" WHERE (created_time, id) > (?5, ?6)
  ORDER BY created_time, id LIMIT ?7)`

// Of each key the row, as long as those before it have no more bytes than is
// asked for.
const sqliteReadKeys rowsStatement = `
SELECT 1, e.created_time, e.id, e.account_id, e.aggregate_type, e.aggregate_id, e.event_type, {payload}
FROM (
  SELECT created_time, id, sum(size) OVER (ORDER BY created_time, id) - size AS before
  FROM (
    SELECT o.created_time, o.id, octet_length(o.payload) AS size
    FROM json_each(?1) AS k CROSS JOIN "{prefix}outbox" AS o
      ON o.created_time = k.value ->> 'micros' AND o.id = k.value ->> 'id'
  )
) AS s CROSS JOIN "{prefix}outbox" AS e ON e.created_time = s.created_time AND e.id = s.id
WHERE s.before < ?2
ORDER BY s.created_time, s.id`
