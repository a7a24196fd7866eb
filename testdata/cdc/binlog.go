package cdc

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-mysql-org/go-mysql/replication"

	"github.com/onward-go/outbox/persistence"
)

// binlogStream follows the binlog, in which transactions come whole, one after
// the other.
type binlogStream struct {
	database string
	columns  []string
	file     string
	records  []persistence.Record // of the transaction that is being read
	changes  []Change
}

// position returns the place after an event.
func (s *binlogStream) position(event *replication.BinlogEvent) mysql.Position {
	if rotate, ok := event.Event.(*replication.RotateEvent); ok {
		s.file = string(rotate.NextLogName)
		return mysql.Position{Name: s.file, Pos: uint32(rotate.Position)}
	}
	return mysql.Position{Name: s.file, Pos: event.Header.LogPos}
}

// read reports whether the event ends a transaction that may hold rows.
func (s *binlogStream) read(event *replication.BinlogEvent) (complete bool, err error) {
	switch e := event.Event.(type) {
	case *replication.RowsEvent:
		return false, s.rows(e)
	case *replication.QueryEvent:
		return s.query(string(e.Schema), string(e.Query))
	case *replication.ExecuteLoadQueryEvent:
		return false, fmt.Errorf("a LOAD DATA in statement format, whose table the event does not name")
	case *replication.TransactionPayloadEvent: // a compressed transaction
		for _, inner := range e.Events {
			if complete, err = s.read(inner); err != nil {
				return false, err
			}
		}
		return complete, nil
	case *replication.XIDEvent:
		return true, nil
	}
	switch event.Header.EventType {
	case replication.TABLE_MAP_EVENT, replication.ROWS_QUERY_EVENT, replication.MARIADB_ANNOTATE_ROWS_EVENT, // beside rows
		replication.GTID_EVENT, replication.GTID_TAGGED_LOG_EVENT, replication.ANONYMOUS_GTID_EVENT, replication.MARIADB_GTID_EVENT, // beginnings
		replication.INTVAR_EVENT, replication.RAND_EVENT, replication.USER_VAR_EVENT, // beside statements
		replication.ROTATE_EVENT, replication.STOP_EVENT, replication.FORMAT_DESCRIPTION_EVENT, replication.PREVIOUS_GTIDS_EVENT,
		replication.MARIADB_GTID_LIST_EVENT, replication.MARIADB_BINLOG_CHECKPOINT_EVENT, // files
		replication.HEARTBEAT_EVENT, replication.HEARTBEAT_LOG_EVENT_V2:
		return false, nil
	}
	return false, fmt.Errorf("event %s, which may hide a change", event.Header.EventType)
}

func (s *binlogStream) rows(e *replication.RowsEvent) error {
	if string(e.Table.Schema) != s.database || string(e.Table.Table) != table {
		return nil
	}
	switch e.Type() {
	case replication.EnumRowsEventTypeInsert:
		for _, row := range e.Rows {
			r, err := s.toRecord(row)
			if err != nil {
				return err
			}
			s.records = append(s.records, r)
		}
	case replication.EnumRowsEventTypeDelete:
		s.changes = append(s.changes, Change{Delete, table})
	default: // an update of whole or of partial rows
		s.changes = append(s.changes, Change{Update, table})
	}
	return nil
}

// named finds the outbox in a statement, and no table whose name goes on.
var named = regexp.MustCompile(`(?i)\b` + table + `\b`)

// query reads a statement: DDL, a change that is logged as text, or the frame
// of a transaction.
func (s *binlogStream) query(schema, text string) (complete bool, err error) {
	word, _, _ := strings.Cut(strings.ToUpper(text), " ")
	switch word {
	case "BEGIN", "SAVEPOINT":
		return false, nil
	case "COMMIT":
		return true, nil
	case "ROLLBACK", "XA":
		// Rows that were rolled back are in the log only beside those of
		// tables without transactions.
		return false, fmt.Errorf("statement %q cannot be followed", text)
	}
	if named.MatchString(text) && (schema == s.database || strings.Contains(text, s.database)) {
		s.changes = append(s.changes, Change{Statement, text})
	}
	return false, nil
}

// toRecord reads a row by the names of its columns, all of which it must have.
func (s *binlogStream) toRecord(row []any) (r persistence.Record, err error) {
	if len(row) != len(s.columns) {
		return r, fmt.Errorf("a row of %d columns, the table has %v", len(row), s.columns)
	}
	var stamp string
	texts := map[string]*string{
		"id": &r.ID, "account_id": &r.AccountID, "aggregate_type": &r.AggregateType, "aggregate_id": &r.AggregateID,
		"event_type": &r.EventType, "created_time": &stamp,
	}
	for i, name := range s.columns {
		switch value := row[i].(type) {
		case string:
			if texts[name] == nil {
				return r, fmt.Errorf("column %s is no text of a record", name)
			}
			*texts[name] = value
			delete(texts, name)
		case []byte:
			if name != "payload" {
				return r, fmt.Errorf("column %s is no payload", name)
			}
			r.Payload = value
		default:
			return r, fmt.Errorf("column %s is a %T", name, value)
		}
	}
	if len(texts) > 0 || r.Payload == nil {
		return r, fmt.Errorf("a row lacks columns of a record: %v", texts)
	}
	// DATETIME has no time zone; the outbox writes UTC.
	r.CreatedTime, err = time.Parse("2006-01-02 15:04:05.999999", stamp)
	return r, err
}
