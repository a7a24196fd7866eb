-- What tells the events of a bucket from others of the same number, for the audit: the
-- sum of their stamps' offsets, and of how many events it is. The release before counts
-- on and leaves both as they are, which shows in the second. MySQL has no ADD COLUMN IF
-- NOT EXISTS, and each statement can be run again.
SET @outbox_ddl = IF(
  EXISTS (SELECT 1 FROM information_schema.columns
    WHERE table_schema = DATABASE() AND table_name = '{prefix}outbox_audit' AND column_name = 'offsets'),
  'DO 0',
  'ALTER TABLE {prefix}outbox_audit
     ADD COLUMN offsets BIGINT NOT NULL DEFAULT 0,
     ADD COLUMN offsets_events BIGINT NOT NULL DEFAULT 0');

-- statement

PREPARE outbox_ddl FROM @outbox_ddl;

-- statement

EXECUTE outbox_ddl;

-- statement

SET @outbox_ddl = IF(
  EXISTS (SELECT 1 FROM information_schema.columns
    WHERE table_schema = DATABASE() AND table_name = '{prefix}outbox_cursors' AND column_name = 'bucket_offsets'),
  'DO 0',
  'ALTER TABLE {prefix}outbox_cursors
     ADD COLUMN bucket_offsets BIGINT NOT NULL DEFAULT 0,
     ADD COLUMN bucket_offsets_events BIGINT NOT NULL DEFAULT 0');

-- statement

PREPARE outbox_ddl FROM @outbox_ddl;

-- statement

EXECUTE outbox_ddl;

-- statement

DEALLOCATE PREPARE outbox_ddl;

-- statement

INSERT INTO {prefix}outbox_schema (version) VALUES (-2);
