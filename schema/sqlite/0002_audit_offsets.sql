-- What tells the events of a bucket from others of the same number, for the audit: the
-- sum of their stamps' offsets, and of how many events it is. The release before counts
-- on and leaves both as they are, which shows in the second.
ALTER TABLE "{prefix}outbox_audit" ADD COLUMN offsets INTEGER NOT NULL DEFAULT 0;

-- statement

ALTER TABLE "{prefix}outbox_audit" ADD COLUMN offsets_events INTEGER NOT NULL DEFAULT 0;

-- statement

ALTER TABLE "{prefix}outbox_cursors" ADD COLUMN bucket_offsets INTEGER NOT NULL DEFAULT 0;

-- statement

ALTER TABLE "{prefix}outbox_cursors" ADD COLUMN bucket_offsets_events INTEGER NOT NULL DEFAULT 0;

-- statement

INSERT INTO "{prefix}outbox_schema" (version) VALUES (-2);
