-- What tells the events of a bucket from others of the same number, for the audit: the
-- sum of their stamps' offsets, and of how many events it is. The release before counts
-- on and leaves both as they are, which shows in the second.
ALTER TABLE {schema}"{prefix}outbox_audit"
  ADD COLUMN offsets bigint NOT NULL DEFAULT 0,
  ADD COLUMN offsets_events bigint NOT NULL DEFAULT 0;

-- statement

ALTER TABLE {schema}"{prefix}outbox_cursors"
  ADD COLUMN bucket_offsets bigint NOT NULL DEFAULT 0,
  ADD COLUMN bucket_offsets_events bigint NOT NULL DEFAULT 0;

-- statement

INSERT INTO {schema}"{prefix}outbox_schema" (version) VALUES (-2);
