package cdc

import "regexp"

// Prefixes of our messages in the WAL.
const (
	ddlPrefix = "cdc ddl"
	endPrefix = "cdc end"
)

// logDDL writes the DDL of every transaction into the log as messages: the
// objects that it makes, alters or drops, an index with its table, and the
// client's statement. The replication role does not switch it off.
const logDDL = `
CREATE OR REPLACE FUNCTION cdc_log_ddl() RETURNS event_trigger LANGUAGE plpgsql AS $$
DECLARE
  n       bigint;
  objects text;
BEGIN
  IF tg_event = 'sql_drop' THEN
    SELECT count(*), string_agg(object_identity, ', ') INTO n, objects FROM pg_event_trigger_dropped_objects();
  ELSE
    SELECT count(*), string_agg(concat_ws(' on ', object_identity, indrelid::regclass), ', ') INTO n, objects
      FROM pg_event_trigger_ddl_commands() LEFT JOIN pg_index ON classid = 'pg_class'::regclass AND objid = indexrelid;
  END IF;
  IF n > 0 THEN
    PERFORM pg_logical_emit_message(true, '` + ddlPrefix + `', coalesce(objects, '') || E'\n' || current_query());
  END IF;
END $$;
DO $$ BEGIN
  IF NOT EXISTS (SELECT 1 FROM pg_event_trigger WHERE evtname = 'cdc_ddl') THEN
    CREATE EVENT TRIGGER cdc_ddl ON ddl_command_end EXECUTE FUNCTION cdc_log_ddl();
    CREATE EVENT TRIGGER cdc_drop ON sql_drop EXECUTE FUNCTION cdc_log_ddl();
    ALTER EVENT TRIGGER cdc_ddl ENABLE ALWAYS;
    ALTER EVENT TRIGGER cdc_drop ENABLE ALWAYS;
  END IF;
END $$`

// ofOutbox finds the outbox, one of its partitions, or an object that belongs
// to them, such as "public.outbox_p2026_11" or "t on public.outbox", and
// statements that name them.
var ofOutbox = regexp.MustCompile(`\b` + table + `(_p\w+)?\b`)
