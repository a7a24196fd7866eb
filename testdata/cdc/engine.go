package cdc

import (
	"context"

	"github.com/onward-go/outbox/persistence"
)

// table is the outbox without a prefix.
const table = "outbox"

// Engine reads the log of one database from the moment the engine was made.
type Engine interface {
	// CatchUp hands over the records of all transactions from the consumer's
	// position to the present end of the log, and returns what else happened
	// to the outbox there, in order. After an error of the consumer it can be
	// called again.
	CatchUp(ctx context.Context, consumer persistence.OutboxCDCConsumer) ([]Change, error)
}

// Change is what the log says of the outbox table beside an insert.
type Change struct {
	Kind Kind
	// Text is the table's or the partition's name, or the statement.
	Text string
}

// Kind is the kind of a [Change].
type Kind string

// A statement is DDL, or on MySQL and MariaDB a change of rows that the session
// had logged as text.
const (
	Update    Kind = "UPDATE"
	Delete    Kind = "DELETE"
	Truncate  Kind = "TRUNCATE"
	Statement Kind = "statement"
)
