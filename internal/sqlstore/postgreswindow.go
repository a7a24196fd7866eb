package sqlstore

// One statement, so one snapshot: the number of rows up to what the reader
// has counted, in place of an id; keys up to its frontier, which have an
// empty event type; and whole rows after it. The order is asked for, since
// a parallel plan keeps none, and whoever has enough rows must have seen
// all keys.
//
// If this snapshot sees none of the holdouts' transactions, it sees
// nothing before the time beyond them that an earlier one did not, so
// the number begins there.
const postgresReadWindow rowsStatement = `
SELECT s.server, nullif(e.created_time, '-infinity'), e.id, e.account_id, e.aggregate_type, e.aggregate_id, e.event_type, e.payload
FROM (SELECT CASE WHEN pg_is_in_recovery() THEN 0 WHEN (SELECT row_security_active('{schema}"{prefix}outbox"')) THEN -2
    ELSE (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint END AS server) AS s
CROSS JOIN LATERAL (
  (SELECT n.rows::text COLLATE "C" AS id, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint::text AS account_id, '' AS aggregate_type, '' AS aggregate_id, start.held AS event_type, NULL::bytea AS payload,
     '-infinity'::timestamptz AS created_time
   FROM (
     SELECT CASE WHEN h.out THEN 'held' ELSE '' END, CASE WHEN h.out THEN $9::timestamptz ELSE $1::timestamptz END, CASE WHEN h.out THEN '' ELSE $2::text END
     FROM (SELECT $9::timestamptz > $1::timestamptz AND bool_and(NOT pg_visible_in_snapshot(t.id::xid8, pg_current_snapshot()))
       FROM unnest(string_to_array($10::text, ',')) AS t(id)) AS h(out)
   ) AS start(held, created_time, id)
   CROSS JOIN LATERAL (
     SELECT count(*) FROM {schema}"{prefix}outbox" AS o
     WHERE o.created_time >= start.created_time AND (o.created_time, o.id) > (start.created_time, start.id)
       AND o.created_time <= $3 AND (o.created_time, o.id) <= ($3, $4)
   ) AS n(rows))
  UNION ALL
  (SELECT id, '', '', '', '', NULL, created_time
   FROM {schema}"{prefix}outbox"
   WHERE created_time >= $3 AND (created_time, id) > ($3, $4) AND created_time <= $5 AND (created_time, id) <= ($5, $6)
   ORDER BY created_time, id LIMIT $8)
  UNION ALL
  (SELECT id, account_id, aggregate_type, aggregate_id, event_type, {payload}, created_time
   FROM {schema}"{prefix}outbox"
   WHERE created_time >= $5 AND (created_time, id) > ($5, $6)
   ORDER BY created_time, id LIMIT $7)
) AS e
ORDER BY e.created_time, e.id`

// Of each key the row, as long as those before it have no more bytes than
// is asked for. The size of a payload is known without it. LIMIT keeps the
// planner from reading the table from end to end, to join it with a few keys.
const postgresReadKeys rowsStatement = `
SELECT CASE WHEN pg_is_in_recovery() THEN 0
    ELSE (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint END,
  e.created_time, e.id, e.account_id, e.aggregate_type, e.aggregate_id, e.event_type, {payload}
FROM (
  SELECT o.created_time, o.id, sum(o.size) OVER (ORDER BY o.created_time, o.id) - o.size AS before
  FROM json_to_recordset($1::json) AS k(micros bigint, id text)
  CROSS JOIN LATERAL (
    SELECT o.created_time, o.id, octet_length(o.payload) AS size FROM {schema}"{prefix}outbox" AS o
    WHERE o.created_time = timestamptz 'epoch' + k.micros * interval '1 microsecond' AND o.id = k.id LIMIT 1
  ) AS o(created_time, id, size)
) AS s
CROSS JOIN LATERAL (
  SELECT * FROM {schema}"{prefix}outbox" AS o WHERE o.created_time = s.created_time AND o.id = s.id LIMIT 1
) AS e
WHERE s.before < $2
ORDER BY s.created_time, s.id`
