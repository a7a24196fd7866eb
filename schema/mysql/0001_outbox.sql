-- The outbox and its sidecar, for MySQL and MariaDB. DDL commits by itself
-- here, so each statement can be run again. Times are UTC. Charset and
-- collation are named on every column, whatever the database's defaults.
-- Names that may end in a blank are VARBINARY, since a collation would pad
-- them.

-- One row a migration that has been applied.
CREATE TABLE IF NOT EXISTS {prefix}outbox_schema (
  version INT NOT NULL PRIMARY KEY
) ENGINE=InnoDB;

-- statement

-- This month, the next three, and an open-ended partition that is normally
-- empty, so that a publish never fails for want of a partition. The first one
-- has no lower bound: RANGE has none.
SET @outbox_partitions = CONCAT(
  'PARTITION BY RANGE (TO_DAYS(created_time)) (',
  'PARTITION p', DATE_FORMAT(UTC_DATE(), '%Y_%m'), ' VALUES LESS THAN (', TO_DAYS(DATE_FORMAT(UTC_DATE() + INTERVAL 1 MONTH, '%Y-%m-01')), '),',
  'PARTITION p', DATE_FORMAT(UTC_DATE() + INTERVAL 1 MONTH, '%Y_%m'), ' VALUES LESS THAN (', TO_DAYS(DATE_FORMAT(UTC_DATE() + INTERVAL 2 MONTH, '%Y-%m-01')), '),',
  'PARTITION p', DATE_FORMAT(UTC_DATE() + INTERVAL 2 MONTH, '%Y_%m'), ' VALUES LESS THAN (', TO_DAYS(DATE_FORMAT(UTC_DATE() + INTERVAL 3 MONTH, '%Y-%m-01')), '),',
  'PARTITION p', DATE_FORMAT(UTC_DATE() + INTERVAL 3 MONTH, '%Y_%m'), ' VALUES LESS THAN (', TO_DAYS(DATE_FORMAT(UTC_DATE() + INTERVAL 4 MONTH, '%Y-%m-01')), '),',
  'PARTITION pmax VALUES LESS THAN MAXVALUE)');

-- statement

-- A row that is inserted without created_time is refused, also where the SQL
-- mode would make it a zero.
SET @outbox_ddl = CONCAT('CREATE TABLE IF NOT EXISTS {prefix}outbox (
  id             VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  account_id     VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT '''',
  aggregate_type VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  aggregate_id   VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  event_type     VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  payload        LONGBLOB NOT NULL,
  created_time   DATETIME(6) NOT NULL CHECK (created_time > ''2000-01-01''),
  PRIMARY KEY (created_time, id)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC ', @outbox_partitions);

-- statement

PREPARE outbox_ddl FROM @outbox_ddl;

-- statement

EXECUTE outbox_ddl;

-- statement

SET @outbox_ddl = CONCAT('CREATE TABLE IF NOT EXISTS {prefix}outbox_idempotency (
  created_time DATETIME(6) NOT NULL,
  event_id     VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  handler      VARBINARY(128) NOT NULL,
  PRIMARY KEY (created_time, event_id, handler)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC ', @outbox_partitions);

-- statement

PREPARE outbox_ddl FROM @outbox_ddl;

-- statement

EXECUTE outbox_ddl;

-- statement

DEALLOCATE PREPARE outbox_ddl;

-- statement

-- The keys of events that an account publishes once. No partition could keep
-- them unique.
CREATE TABLE IF NOT EXISTS {prefix}outbox_dedup (
  account_id   VARBINARY(255) NOT NULL,
  dedup_key    VARBINARY(255) NOT NULL,
  created_time DATETIME(6) NOT NULL,
  PRIMARY KEY (account_id, dedup_key),
  KEY outbox_dedup_age (created_time)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

-- statement

CREATE TABLE IF NOT EXISTS {prefix}outbox_cursors (
  dispatcher   VARBINARY(128) NOT NULL PRIMARY KEY,
  created_time DATETIME(6) NOT NULL,
  event_id     VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  owner        VARBINARY(255) NOT NULL DEFAULT '',
  token        BIGINT NOT NULL DEFAULT 0,
  expires_time DATETIME(6),
  unclean      BOOLEAN NOT NULL DEFAULT FALSE,
  counted_from DATETIME(6) NOT NULL,
  bucket_events BIGINT NOT NULL DEFAULT 0,
  rev          BIGINT NOT NULL DEFAULT 0
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

-- statement

-- Which handlers the dispatchers have, and how far those have come that the
-- cursor has passed.
CREATE TABLE IF NOT EXISTS {prefix}outbox_subscriptions (
  event_type  VARBINARY(255) NOT NULL,
  handler     VARBINARY(128) NOT NULL,
  dispatcher  VARBINARY(128) NOT NULL,
  start_time  DATETIME(6) NOT NULL,
  start_id    VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  behind_time DATETIME(6),
  behind_id   VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin,
  served_time DATETIME(6) NOT NULL,
  PRIMARY KEY (event_type, handler)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

-- statement

-- How many events a dispatcher has settled, by ten seconds of their stamps.
CREATE TABLE IF NOT EXISTS {prefix}outbox_audit (
  dispatcher  VARBINARY(128) NOT NULL,
  bucket_time DATETIME(6) NOT NULL,
  events      BIGINT NOT NULL,
  PRIMARY KEY (dispatcher, bucket_time)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

-- statement

CREATE TABLE IF NOT EXISTS {prefix}outbox_attempts (
  dispatcher   VARBINARY(128) NOT NULL,
  created_time DATETIME(6) NOT NULL,
  event_id     VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  handler      VARBINARY(128) NOT NULL,
  attempts     INT NOT NULL,
  last_error   TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  next_time    DATETIME(6) NOT NULL,
  PRIMARY KEY (dispatcher, created_time, event_id, handler)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

-- statement

CREATE TABLE IF NOT EXISTS {prefix}outbox_dead_letters (
  created_time   DATETIME(6) NOT NULL,
  event_id       VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  handler        VARBINARY(128) NOT NULL,
  dispatcher     VARBINARY(128) NOT NULL,
  account_id     VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  aggregate_type VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  aggregate_id   VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  event_type     VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  payload        LONGBLOB NOT NULL,
  attempts       INT NOT NULL,
  last_error     TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  state          VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  dead_time      DATETIME(6) NOT NULL,
  PRIMARY KEY (created_time, event_id, handler),
  KEY by_state (state, created_time, event_id, handler)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

-- statement

-- A ring of rows that never change. A producer holds a shared lock on the one
-- of its time until it ends.
CREATE TABLE IF NOT EXISTS {prefix}outbox_fence (
  slot SMALLINT UNSIGNED NOT NULL PRIMARY KEY
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

-- statement

INSERT INTO {prefix}outbox_fence (slot)
WITH RECURSIVE ring (slot) AS (SELECT 0 UNION ALL SELECT slot + 1 FROM ring WHERE slot < 63)
SELECT slot FROM ring WHERE NOT EXISTS (SELECT 1 FROM {prefix}outbox_fence);

-- statement

INSERT INTO {prefix}outbox_schema (version) VALUES (1);
