// Package cdc reads the outbox from the databases' own logs, as change-data-
// capture tools do: from PostgreSQL's WAL through pgoutput, and from the row
// events of MySQL's and MariaDB's binlog. Its engines feed a
// [persistence.OutboxCDCConsumer], and report everything else that the log says
// of the outbox table.
//
// The tests prove with it that the log holds nothing but the inserts of the
// committed events and the statements that add and drop partitions, and that
// an engine would notice anything else.
package cdc
