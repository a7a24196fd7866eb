package cdc

import (
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/onward-go/outbox/persistence"
)

// walStream decodes pgoutput's messages. With version 1 of its protocol
// transactions come whole, one after the other.
type walStream struct {
	end       string
	ended     bool // the message that is the end has been read
	relations map[uint32]*pglogrepl.RelationMessage
	records   []persistence.Record // of the transaction that is being read
	changes   []Change
}

// read returns the position after a transaction that is complete now, else 0.
func (s *walStream) read(data []byte) (commit pglogrepl.LSN, err error) {
	message, err := pglogrepl.Parse(data)
	if err != nil {
		return 0, err
	}
	switch m := message.(type) {
	case *pglogrepl.RelationMessage:
		s.relations[m.RelationID] = m
	case *pglogrepl.InsertMessage:
		if s.isOutbox(m.RelationID) {
			r, err := toRecord(s.relations[m.RelationID], m.Tuple)
			if err != nil {
				return 0, err
			}
			s.records = append(s.records, r)
		}
	case *pglogrepl.UpdateMessage:
		s.change(Update, m.RelationID)
	case *pglogrepl.DeleteMessage:
		s.change(Delete, m.RelationID)
	case *pglogrepl.TruncateMessage:
		for _, id := range m.RelationIDs {
			s.change(Truncate, id)
		}
	case *pglogrepl.LogicalDecodingMessage:
		s.message(m.Prefix, string(m.Content))
	case *pglogrepl.CommitMessage:
		return m.TransactionEndLSN, nil
	case *pglogrepl.BeginMessage, *pglogrepl.TypeMessage, *pglogrepl.OriginMessage:
	default:
		return 0, fmt.Errorf("message %s, which nobody knows", message.Type())
	}
	return 0, nil
}

func (s *walStream) isOutbox(relation uint32) bool {
	// The name of no other table of the library goes on like this.
	name := s.relations[relation].RelationName
	return name == table || strings.HasPrefix(name, table+"_p")
}

func (s *walStream) change(kind Kind, relation uint32) {
	if s.isOutbox(relation) {
		s.changes = append(s.changes, Change{kind, s.relations[relation].RelationName})
	}
}

func (s *walStream) message(prefix, content string) {
	switch prefix {
	case endPrefix:
		s.ended = s.ended || content == s.end
	case ddlPrefix:
		_, statement, _ := strings.Cut(content, "\n")
		if ofOutbox.MatchString(content) {
			s.changes = append(s.changes, Change{Statement, statement})
		}
	}
}

// toRecord reads a row by the names of its columns, all of which it must have.
func toRecord(relation *pglogrepl.RelationMessage, tuple *pglogrepl.TupleData) (persistence.Record, error) {
	var r persistence.Record
	var stamp time.Time
	fields := map[string]any{
		"id": &r.ID, "account_id": &r.AccountID, "aggregate_type": &r.AggregateType, "aggregate_id": &r.AggregateID,
		"event_type": &r.EventType, "payload": &r.Payload, "created_time": &stamp,
	}
	types := pgtype.NewMap()
	for i, column := range relation.Columns {
		field, known := fields[column.Name]
		if !known {
			return r, fmt.Errorf("table %s has a column %s, which no record has", relation.RelationName, column.Name)
		}
		delete(fields, column.Name)
		if err := types.Scan(column.DataType, pgtype.TextFormatCode, tuple.Columns[i].Data, field); err != nil {
			return r, fmt.Errorf("column %s: %w", column.Name, err)
		}
	}
	if len(fields) > 0 {
		return r, fmt.Errorf("table %s lacks columns of a record: %v", relation.RelationName, fields)
	}
	r.CreatedTime = stamp.UTC()
	return r, nil
}
