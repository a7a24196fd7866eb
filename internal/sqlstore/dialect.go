package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"time"

	"github.com/onward-go/outbox/persistence"
)

// Dialect is what the stores have to know about a kind of database. It holds
// no state of a database; one value serves all.
type Dialect struct {
	// Name is the dialect's folder in package schema.
	Name string
	// statements are templates for schema.Naming.
	statements statements
	// encodeTime makes a statement argument of a time.
	encodeTime func(time.Time) any
	// safeMark reads the fence.
	safeMark func(ctx context.Context, conn Conn, s *statements) (mark, error)
	// Begin replaces the driver's begin, where that would take its locks too
	// late.
	Begin []string
	// ProbeOpen is a statement that fails inside an open transaction and
	// begins one outside, for databases that end a transaction on an error
	// without a word, or "".
	ProbeOpen string
	// IsOpen reports whether ProbeOpen failed because a transaction is open.
	IsOpen func(error) bool
	// OneWriter says that a second connection cannot write while a transaction
	// is open.
	OneWriter bool
}

// mark is a safe mark and the server that told it.
type mark struct {
	persistence.SafeMark
	server int64
}

// statements are the texts of a dialect. Each field says in its dialect's file
// what there is to say about it; the order of arguments is the same on all. They
// are exported for reflection to reach them.
type statements struct {
	// outbox
	AppendRecord  string // id, account, aggregate type, aggregate id, event type, payload
	AppendRecords string // records as JSON, payloads
	SafeMark      string
	ReadAfter     string // after time, after id, mark, limit
	ReadWindow    string // after time, after id, frontier time, frontier id, limit
	ReadKeys      string // keys as JSON
	CountRows     string // from, to, bucket width in µs

	// idempotency
	RecordMarker   string // time, id, handler
	AppliedMarkers string // markers as JSON

	// cursors
	LoadCursor     string // dispatcher
	ListCursors    string
	CreateCursor   string // dispatcher, time, id
	AcquireLease   string // dispatcher, owner, duration in µs
	ReleaseLease   string // dispatcher, token
	SaveCursor     string // dispatcher, token, time, id
	RewindCursor   string // dispatcher, time, id
	ForgetCursor   string // dispatcher
	HoldsToken     string // dispatcher, token
	LoadAttempts   string // dispatcher, limit
	LoadAttempt    string // dispatcher, time, id, handler
	RecordFailure  string // dispatcher, token, time, id, handler, error, delay in µs
	SettleAttempts string // dispatcher, token, time, id
	ForgetAttempts string // dispatcher

	// dead letters
	AddDeadLetter      string // dispatcher, token, time, id, handler, account, aggregate type, aggregate id, event type, payload, attempts, error, state
	ListDeadLetters    string // state, dispatcher, handler, after time, after id, after handler, limit
	SetDeadLetterState string // time, id, handler, from, to
	PurgeDeadLetters   string // before, limit

	// schema
	FindSchema        string // is the version table there?
	SchemaVersion     string
	IsolateMigrations string // or ""
	LockMigrations    string // or ""
}

// sqlState returns the SQLSTATE of an error, or "". Drivers of PostgreSQL name
// the method alike.
func sqlState(err error) string {
	var s interface{ SQLState() string }
	if errors.As(err, &s) {
		return s.SQLState()
	}
	return ""
}

// EndsTransaction reports whether the server ends the whole transaction, or the
// connection, with an error of this kind.
func (d *Dialect) EndsTransaction(err error) bool {
	if errors.Is(err, driver.ErrBadConn) || errors.Is(err, sql.ErrConnDone) || errors.Is(err, sql.ErrTxDone) {
		return true
	}
	switch state := sqlState(err); {
	case len(state) != 5:
		return false
	case state[:2] == "08", // connection exception
		state == "57P01", state == "57P02", state == "57P03", // the server shuts down or ends the session
		state == "25P03", state == "25P04": // idle in transaction too long, transaction too long
		return true
	}
	return false
}
