-- The outbox and its sidecar.

DO $$
BEGIN
  IF '{schema_name}' <> '' AND to_regnamespace(quote_ident('{schema_name}')) IS NULL THEN
    EXECUTE format('CREATE SCHEMA %I', '{schema_name}');
  END IF;
END $$;

-- statement

-- One row a migration that has been applied.
CREATE TABLE {schema}"{prefix}outbox_schema" (version integer NOT NULL PRIMARY KEY);

-- statement

-- The stamp of a row that is inserted without created_time, by hand, by an ORM
-- or by a trigger. Lock first, stamp after: the same fence that the library's
-- own insert takes. The namespace is the table's oid, so that every producer
-- agrees on it, whatever its search path.
CREATE FUNCTION {schema}"{prefix}outbox_stamp"(outbox regclass) RETURNS timestamptz
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  PERFORM pg_advisory_xact_lock_shared(
    (outbox::oid::bigint & 524287) << 44 | floor(extract(epoch FROM now()) * 1000)::bigint);
  RETURN clock_timestamp();
END $$;

-- statement

CREATE TABLE {schema}"{prefix}outbox" (
  id             text COLLATE "C" NOT NULL CHECK (id <> ''),
  account_id     text COLLATE "C" NOT NULL DEFAULT '',
  aggregate_type text COLLATE "C" NOT NULL,
  aggregate_id   text COLLATE "C" NOT NULL,
  event_type     text COLLATE "C" NOT NULL,
  payload        bytea NOT NULL DEFAULT '',
  created_time   timestamptz NOT NULL CHECK (created_time > '2000-01-01 00:00:00+00'), -- an ORM's zero time
  PRIMARY KEY (created_time, id)
) PARTITION BY RANGE (created_time);

-- statement

-- In a statement of its own, since the default names the table.
ALTER TABLE {schema}"{prefix}outbox" ALTER COLUMN created_time
  SET DEFAULT {schema}"{prefix}outbox_stamp"('{schema}"{prefix}outbox"'::regclass);

-- statement

CREATE TABLE {schema}"{prefix}outbox_idempotency" (
  created_time timestamptz NOT NULL,
  event_id     text COLLATE "C" NOT NULL,
  handler      text COLLATE "C" NOT NULL,
  PRIMARY KEY (created_time, event_id, handler)
) PARTITION BY RANGE (created_time);

-- statement

-- The keys of events that an account publishes once. No partition could keep
-- them unique.
CREATE TABLE {schema}"{prefix}outbox_dedup" (
  account_id   text COLLATE "C" NOT NULL,
  dedup_key    text COLLATE "C" NOT NULL,
  created_time timestamptz NOT NULL,
  PRIMARY KEY (account_id, dedup_key)
);

-- statement

CREATE INDEX "{prefix}outbox_dedup_age" ON {schema}"{prefix}outbox_dedup" (created_time);

-- statement

-- This month, the next three, and an open-ended partition that is normally
-- empty, so that a publish never fails for want of a partition. The first one
-- has no lower bound for the same reason: a clock may be set back.
DO $$
DECLARE
  parent text;
  month  timestamp := date_trunc('month', now() AT TIME ZONE 'UTC');
  bound  text;
BEGIN
  FOREACH parent IN ARRAY ARRAY['{prefix}outbox_idempotency', '{prefix}outbox'] LOOP
    bound := 'MINVALUE';
    FOR i IN 0..3 LOOP
      EXECUTE format('CREATE TABLE {schema}%I PARTITION OF {schema}%I FOR VALUES FROM (%s) TO (%L)',
        parent || to_char(month + make_interval(months => i), '"_p"YYYY_MM'), parent, bound,
        to_char(month + make_interval(months => i + 1), 'YYYY-MM-DD HH24:MI:SS"+00"'));
      bound := quote_literal(to_char(month + make_interval(months => i + 1), 'YYYY-MM-DD HH24:MI:SS"+00"'));
    END LOOP;
    EXECUTE format('CREATE TABLE {schema}%I PARTITION OF {schema}%I FOR VALUES FROM (%s) TO (MAXVALUE)',
      parent || '_pmax', parent, bound);
  END LOOP;
END $$;

-- statement

CREATE TABLE {schema}"{prefix}outbox_cursors" (
  dispatcher   text COLLATE "C" NOT NULL PRIMARY KEY,
  created_time timestamptz NOT NULL,
  event_id     text COLLATE "C" NOT NULL,
  owner        text COLLATE "C" NOT NULL DEFAULT '',
  token        bigint NOT NULL DEFAULT 0,
  expires_time timestamptz,
  unclean      boolean NOT NULL DEFAULT false,
  counted_from timestamptz NOT NULL,
  bucket_events bigint NOT NULL DEFAULT 0
);

-- statement

-- Which handlers the dispatchers have, and how far those have come that the
-- cursor has passed.
CREATE TABLE {schema}"{prefix}outbox_subscriptions" (
  event_type  text COLLATE "C" NOT NULL,
  handler     text COLLATE "C" NOT NULL,
  dispatcher  text COLLATE "C" NOT NULL,
  start_time  timestamptz NOT NULL,
  start_id    text COLLATE "C" NOT NULL,
  behind_time timestamptz,
  behind_id   text COLLATE "C",
  served_time timestamptz NOT NULL,
  PRIMARY KEY (event_type, handler)
);

-- statement

-- How many events a dispatcher has settled, by ten seconds of their stamps.
CREATE TABLE {schema}"{prefix}outbox_audit" (
  dispatcher  text COLLATE "C" NOT NULL,
  bucket_time timestamptz NOT NULL,
  events      bigint NOT NULL,
  PRIMARY KEY (dispatcher, bucket_time)
);

-- statement

CREATE TABLE {schema}"{prefix}outbox_attempts" (
  dispatcher   text COLLATE "C" NOT NULL,
  created_time timestamptz NOT NULL,
  event_id     text COLLATE "C" NOT NULL,
  handler      text COLLATE "C" NOT NULL,
  attempts     integer NOT NULL,
  last_error   text NOT NULL,
  next_time    timestamptz NOT NULL,
  PRIMARY KEY (dispatcher, created_time, event_id, handler)
);

-- statement

CREATE TABLE {schema}"{prefix}outbox_dead_letters" (
  created_time   timestamptz NOT NULL,
  event_id       text COLLATE "C" NOT NULL,
  handler        text COLLATE "C" NOT NULL,
  dispatcher     text COLLATE "C" NOT NULL,
  account_id     text COLLATE "C" NOT NULL,
  aggregate_type text COLLATE "C" NOT NULL,
  aggregate_id   text COLLATE "C" NOT NULL,
  event_type     text COLLATE "C" NOT NULL,
  payload        bytea NOT NULL,
  attempts       integer NOT NULL,
  last_error     text NOT NULL,
  state          text COLLATE "C" NOT NULL,
  dead_time      timestamptz NOT NULL,
  PRIMARY KEY (created_time, event_id, handler)
);

-- statement

-- What is requeued is looked for again and again.
CREATE INDEX "{prefix}outbox_dead_letters_state" ON {schema}"{prefix}outbox_dead_letters" (state, created_time, event_id, handler);

-- statement

INSERT INTO {schema}"{prefix}outbox_schema" (version) VALUES (1);
