-- The outbox and its sidecar. Times are microseconds since the Unix epoch,
-- UTC. SQLite compares text byte by byte unless it is told otherwise.

-- One row a migration that has been applied.
CREATE TABLE "{prefix}outbox_schema" (version INTEGER NOT NULL PRIMARY KEY);

-- statement

CREATE TABLE "{prefix}outbox" (
  id             TEXT NOT NULL CHECK (id <> ''),
  account_id     TEXT NOT NULL DEFAULT '',
  aggregate_type TEXT NOT NULL,
  aggregate_id   TEXT NOT NULL,
  event_type     TEXT NOT NULL,
  payload        BLOB NOT NULL DEFAULT x'',
  created_time   INTEGER NOT NULL CHECK (created_time > 946684800000000), -- an ORM's zero time
  PRIMARY KEY (created_time, id)
);

-- statement

CREATE TABLE "{prefix}outbox_idempotency" (
  created_time INTEGER NOT NULL,
  event_id     TEXT NOT NULL,
  handler      TEXT NOT NULL,
  PRIMARY KEY (created_time, event_id, handler)
) WITHOUT ROWID;

-- statement

-- The keys of events that an account publishes once.
CREATE TABLE "{prefix}outbox_dedup" (
  account_id   TEXT NOT NULL,
  dedup_key    TEXT NOT NULL,
  created_time INTEGER NOT NULL,
  PRIMARY KEY (account_id, dedup_key)
) WITHOUT ROWID;

-- statement

CREATE INDEX "{prefix}outbox_dedup_age" ON "{prefix}outbox_dedup" (created_time);

-- statement

CREATE TABLE "{prefix}outbox_cursors" (
  dispatcher   TEXT NOT NULL PRIMARY KEY,
  created_time INTEGER NOT NULL,
  event_id     TEXT NOT NULL,
  owner        TEXT NOT NULL DEFAULT '',
  token        INTEGER NOT NULL DEFAULT 0,
  expires_time INTEGER,
  unclean      INTEGER NOT NULL DEFAULT 0,
  counted_from INTEGER NOT NULL,
  bucket_events INTEGER NOT NULL DEFAULT 0,
  high_water   INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;

-- statement

-- Which handlers the dispatchers have, and how far those have come that the
-- cursor has passed.
CREATE TABLE "{prefix}outbox_subscriptions" (
  event_type  TEXT NOT NULL,
  handler     TEXT NOT NULL,
  dispatcher  TEXT NOT NULL,
  start_time  INTEGER NOT NULL,
  start_id    TEXT NOT NULL,
  behind_time INTEGER,
  behind_id   TEXT,
  served_time INTEGER NOT NULL,
  PRIMARY KEY (event_type, handler)
) WITHOUT ROWID;

-- statement

-- How many events a dispatcher has settled, by ten seconds of their stamps.
CREATE TABLE "{prefix}outbox_audit" (
  dispatcher  TEXT NOT NULL,
  bucket_time INTEGER NOT NULL,
  events      INTEGER NOT NULL,
  PRIMARY KEY (dispatcher, bucket_time)
) WITHOUT ROWID;

-- statement

CREATE TABLE "{prefix}outbox_attempts" (
  dispatcher   TEXT NOT NULL,
  created_time INTEGER NOT NULL,
  event_id     TEXT NOT NULL,
  handler      TEXT NOT NULL,
  attempts     INTEGER NOT NULL,
  last_error   TEXT NOT NULL,
  next_time    INTEGER NOT NULL,
  PRIMARY KEY (dispatcher, created_time, event_id, handler)
) WITHOUT ROWID;

-- statement

CREATE TABLE "{prefix}outbox_dead_letters" (
  created_time   INTEGER NOT NULL,
  event_id       TEXT NOT NULL,
  handler        TEXT NOT NULL,
  dispatcher     TEXT NOT NULL,
  account_id     TEXT NOT NULL,
  aggregate_type TEXT NOT NULL,
  aggregate_id   TEXT NOT NULL,
  event_type     TEXT NOT NULL,
  payload        BLOB NOT NULL,
  attempts       INTEGER NOT NULL,
  last_error     TEXT NOT NULL,
  state          TEXT NOT NULL,
  dead_time      INTEGER NOT NULL,
  PRIMARY KEY (created_time, event_id, handler)
);

-- statement

-- What is requeued is looked for again and again.
CREATE INDEX "{prefix}outbox_dead_letters_state" ON "{prefix}outbox_dead_letters" (state, created_time, event_id, handler);

-- statement

-- A row that is inserted without created_time, by hand or by an ORM, is stamped
-- like any other. A default cannot read the table and a trigger cannot change
-- the row it fires for, so the trigger inserts the stamped row in its place.
CREATE TRIGGER "{prefix}outbox_stamp" BEFORE INSERT ON "{prefix}outbox"
WHEN NEW.created_time IS NULL
BEGIN
  INSERT INTO "{prefix}outbox" (id, account_id, aggregate_type, aggregate_id, event_type, payload, created_time)
  VALUES (NEW.id, NEW.account_id, NEW.aggregate_type, NEW.aggregate_id, NEW.event_type, NEW.payload,
    max(CAST(unixepoch('subsec') * 1000000 AS INTEGER),
        1 + coalesce((SELECT max(created_time) FROM "{prefix}outbox"), 0),
        1 + coalesce((SELECT max(high_water) FROM "{prefix}outbox_cursors"), 0)));
  SELECT RAISE(IGNORE);
END;

-- statement

INSERT INTO "{prefix}outbox_schema" (version) VALUES (1);
