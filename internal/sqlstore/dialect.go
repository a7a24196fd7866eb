package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"strings"
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
	// newSafeMark returns the reader of a store's fence.
	newSafeMark func() markReader
	// wrap translates arguments, where the database cannot number them; or nil.
	wrap func(Conn) Conn
	// isDuplicate reports whether an error says that a key exists already, on
	// databases where the statement cannot tell by its rows; or nil.
	isDuplicate func(error) bool
	// endsTransaction reports errors that end the whole transaction on this
	// kind of database; or nil.
	endsTransaction func(error) bool
	// isTransient reports errors of the server, or its driver, after which the same
	// may succeed; those of a lost connection are told without it.
	isTransient func(error) bool
	// lostConnection is how the driver's error for one ends, told by its text
	// to do without an import; or "".
	lostConnection string
	// isTaken reports the error of InsertMarker that there is such a marker.
	isTaken func(error) bool
	// setsTransaction says that the statement that records a marker sets, for the
	// transaction, how long it may stand idle, and whether its commit waits until it
	// is on disk.
	setsTransaction bool
	// tellsLife says that the server outlives neither a crash nor a failover: fenced
	// statements compare the life in which the lease was acquired, their last argument,
	// with that of the server.
	tellsLife bool
	// isAnotherLife reports the error of a statement that records a marker that the
	// server lives another life, where its rows do not tell; or nil.
	isAnotherLife func(error) bool
	// listsKnown says that RecordMarkers takes arrays, and yields the markers that
	// existed already instead of those that are new.
	listsKnown bool
	// partitions is how the tables are partitioned; nil where retention deletes
	// rows.
	partitions partitioning
	// partitionsAreTables says that the name of a partition is one of a table.
	partitionsAreTables bool
	// isRace reports what a replica may meet where another one makes or drops
	// the same partitions; or nil, where they take turns.
	isRace func(error) bool
	// isLockTimeout reports whether a statement has given up waiting for a lock.
	isLockTimeout func(error) bool
	// hidesHolders reports whether the server refuses to tell who holds a
	// table's lock; or nil.
	hidesHolders func(error) bool
	// lacksPrivilege reports whether the server refuses a statement to the user; nil
	// where there are no users.
	lacksPrivilege func(error) bool
	// judge makes out a server by what it tells of itself and of the session, and
	// refuses one that will not do.
	judge func(facts) (product, error)
	// refuses makes a finding of the error of a server that is set up so that it cannot
	// even be asked; or nil.
	refuses func(error) error
	// advise returns what to do about an error that is not of a statement, but of the way
	// to the database; or "".
	advise func(error) string
	// watchesTables says that whether the tables hide rows is asked again with each
	// lease, since it can change, and costs little to ask.
	watchesTables bool
	// Begin replaces the driver's begin, where that would take its locks too
	// late.
	Begin []string
	// commitsImplicitly reports statements, by their first words, that end the
	// transaction on this kind of database only; or nil.
	commitsImplicitly func(words []string) bool
	// AbortsOnError says that a statement that fails aborts the transaction: it takes
	// no further one, and its COMMIT is a rollback, unless it goes back to a savepoint.
	AbortsOnError bool
	// ProbeOpen is a statement that fails inside an open transaction and begins
	// one, or changes nothing, outside, for databases that may end a
	// transaction without a word that passes here; or "".
	ProbeOpen string
	// IsOpen reports whether ProbeOpen failed because a transaction is open.
	IsOpen func(error) bool
	// MayHaveEnded reports whether a statement that returned no error may have
	// ended the transaction; rows says that its result is still to be read.
	// Where asking takes no round trip it is nil: any statement may.
	MayHaveEnded func(query string, rows bool) bool
	// CountPrepared tells how many statements the session has prepared, as the value of
	// the status variable that its argument names, where the driver prepares a statement
	// each time that it runs; or "".
	CountPrepared string
	// PreparedRoom tells how many statements each connection may keep prepared, so that
	// all connections that the server accepts keep half of what it holds at most.
	PreparedRoom string
	// OutOfPrepared reports an error of a server that holds no more prepared statements.
	OutOfPrepared func(error) bool
	// namesHoldouts says that SafeMark tells them, and ReadWindow takes them.
	namesHoldouts bool
	// OneWriter says that a second connection cannot write while a transaction
	// is open.
	OneWriter bool
}

// markReader reads the safe mark from the fence.
type markReader func(ctx context.Context, conn Conn, s *statements) (mark, error)

// mark is a safe mark and the server that told it.
type mark struct {
	persistence.SafeMark
	server int64
	// held are the rows of a fence that producers hold: when each was last seen
	// free. It says nothing where the database tells the mark by itself.
	held []time.Time
}

// oneStatementMark reads a safe mark that the database knows by itself.
func oneStatementMark(ctx context.Context, conn Conn, s *statements) (mark, error) {
	var m mark
	err := conn.Query(ctx, s.SafeMark, nil, func(scan func(...any) error) error {
		return scan(timestamp{&m.Now}, timestamp{&m.Time}, &m.server)
	})
	return m, err
}

// holdoutMark reads a safe mark, and who holds it back.
func holdoutMark(ctx context.Context, conn Conn, s *statements) (mark, error) {
	var m mark
	var holdouts string
	err := conn.Query(ctx, s.SafeMark, nil, func(scan func(...any) error) error {
		return scan(timestamp{&m.Now}, timestamp{&m.Time}, &m.server, timestamp{&m.Holdouts.Beyond}, &holdouts)
	})
	if holdouts != "" {
		m.Holdouts.Transactions = strings.Split(holdouts, ",")
	}
	return m, err
}

// statements are the texts of a dialect. Each field says in its dialect's file
// what there is to say about it; the order of arguments is the same on all. They
// are exported for reflection to reach them.
type statements struct {
	// outbox
	AppendRecord  string // id, account, aggregate type, aggregate id, event type, payload
	AppendRecords string // records as JSON, payloads
	SampleClock   string // or ""
	SafeMark      string // the slot of now, where there are slots
	ReadAfter     string // after time, after id, mark, limit
	ReadWindow    string // after time, after id, counted time, counted id, frontier time, frontier id, limit, limit of keys; and with namesHoldouts the time beyond them and their names
	ReadKeys      string // keys as JSON, limit of bytes
	// likewise, without payloads
	ReadWindowHeads, ReadKeysHeads string
	CountRows                      string // from, to, bucket width in µs; the sum of what the stamps lie after the beginning of their bucket

	// idempotency
	// Time, id, handler; and with setsTransaction the idle limit in ms, or "", the two
	// times of a life, or NULL, and "off" unless the commit is to be synchronous.
	RecordMarker string
	// The same where the server is the one named, and loses nothing that has committed;
	// or "". Time, id, handler, server
	RecordMarkerDurably string
	// The same in a life of the server. Time, id, handler, life; or ""
	RecordMarkerInLife string
	// InsertMarker fails where there is such a marker, and leaves the transaction of
	// no use. Time, id, handler, idle limit in ms, the two times of a life, or NULL; or ""
	InsertMarker               string
	InsertMarkerAsynchronously string // alike; the commit is not synchronous
	// Markers as JSON, and the settings alike; yields those that are new, unless there is
	// isDuplicate or listsKnown.
	RecordMarkers        string
	RecordMarkersDurably string // or ""
	RecordMarkersInLife  string // or ""
	AppliedMarkers       string // markers as JSON

	// dedup keys
	ReserveKeys string // keys as JSON; yields those it reserved, or fails for all
	ReleaseKeys string // keys as JSON; or ""
	TakenKeys   string // keys as JSON; or ""
	PurgeKeys   string // before, limit

	sidecarStatements
	statusStatements

	// retention
	OutboxTable   string // its name in a statement
	MarkerTable   string
	NextEvent     string // after time, after id, before
	ForgetEvents  string // before, limit; or ""
	ForgetMarkers string // before, limit; or ""
	partitionStatements
	inspectStatements

	// schema
	DescribeServer       string // names and values of what there is to know of server and session
	DescribeTables       string // yields a table, what is wrong with it, and by what name
	ProbeFormat          string // yields 2026-03-29 01:59:59 UTC and a zero byte; or ""
	SessionIdleLimit     string // of the session as it begins, in ms; or ""
	SessionReadCommitted string // has the session's transactions run under READ COMMITTED; or ""
	ClockMoves           string // yields a row if the clock moves on within a statement; or ""
	FindSchema           string // is the version table there?
	SchemaVersions       string // one row a migration that is applied, negative for a compatible one
	IsolateMigrations    string // or ""
	LockMigrations       string // or ""
	UnlockMigrations     string // or ""
}

// rowsStatement reads rows; {payload} stands for the column.
type rowsStatement string

func (s rowsStatement) whole() string { return strings.ReplaceAll(string(s), "{payload}", "payload") }
func (s rowsStatement) heads() string { return strings.ReplaceAll(string(s), "{payload}", "NULL") }

// statusStatements are what an operator asks.
type statusStatements struct {
	CountAfter    string // after time, after id, limit
	CountAttempts string // dispatcher, limit
	CountLetters  string // limit of each state; yields dispatcher, state, number
	// limit; yield when the transaction began, session, client, state, name of a prepared transaction
	Producers string // or ""
	Suspects  string // or ""; for MariaDB

	// a time; yields the clock, whether it is a primary, whether the session may write, and the time
	ProbeSession string
	// yields the id and the stamp, as text, of the event that is furthest ahead, by more
	// than an hour
	EventAhead string
	// yields what the user lacks for retention's DDL: a table, a privilege
	LackedByRetention string // or ""
}

// sidecarStatements are those of what dispatchers remember.
type sidecarStatements struct {
	// With tellsLife, those that take a token take the server's life, too, as the last
	// argument, and those that yield a cursor yield it in the last column.

	// cursors
	LoadCursor   string // dispatcher
	ListCursors  string
	LockCursor   string // dispatcher
	CreateCursor string // dispatcher, time, id, counted from
	AcquireLease string // dispatcher, owner, duration in µs
	ReleaseLease string // dispatcher, token, owner
	SaveCursor   string // dispatcher, token, time, id, events of its bucket, sum of their offsets, of how many, owner
	RewindCursor string // dispatcher, time, id, counted from
	ForgetCursor string // dispatcher
	KeepToken    string // dispatcher, the end of time, token
	HoldsToken   string // dispatcher, token, owner

	// subscriptions
	RegisterSubscriptions string // subscriptions as JSON, dispatcher, time, id
	SettleVisible         string // subscriptions as JSON, time, id, limit
	ListSubscriptions     string
	ListUnserved          string // dispatcher, duration in µs
	MoveSubscription      string // event type, handler, start time, start id, behind time, behind id
	ForgetSubscription    string // event type, handler

	// counts
	SaveCounts   string // dispatcher, token, buckets as JSON, owner
	LoadCounts   string // dispatcher, from, to
	ForgetCounts string // dispatcher, before

	// failures
	LoadAttempts   string // dispatcher, limit
	LoadAttempt    string // dispatcher, time, id, handler
	RecordFailure  string // dispatcher, token, time, id, handler, number, error, delay in µs, owner
	SettleAttempts string // dispatcher, token, markers as JSON, owner
	ForgetAttempts string // dispatcher, before

	// dead letters
	AddDeadLetter string // dispatcher, token, time, id, handler, account, aggregate type, aggregate id, event type, payload, attempts, error, state, owner
	// state, dispatcher, handler, event id, event type, account, aggregate type, aggregate id, after time, after id,
	// after handler, without payload, limit
	ListDeadLetters   string // the state is empty
	ListDeadLettersIn string
	GetDeadLetter     string // time, id, handler
	MoveDeadLetter    string // time, id, handler, from, to, attempts, error; and with setsTransaction the idle limit in ms, or ""
	PurgeDeadLetters  string // before, limit
}

// partitionStatements are what a dialect needs to make and drop partitions.
// They take no arguments but those named; fill puts the names in.
type partitionStatements struct {
	ListPartitions string // table
	LastStamp      string
	TableHolders   string // table

	// MySQL
	ExtendPartitions string // <ranges>
	PartitionRange   string // one of <ranges>
	DropPartition    string
	LimitLockWait    string // seconds
	SessionID        string
	WaitsForTable    string // session
	Interrupt        string // <session>

	// PostgreSQL
	LimitWaits       string // for a lock, while idle; ms
	LimitStatements  string // ms
	LockTable        string
	DetachPartition  string
	RenamePartition  string
	AttachPartition  string
	CreatePartition  string
	CreateLast       string
	BoundPartition   string
	LastBound        string // partition
	ValidateBound    string
	UnboundPartition string
	UnboundAttached  string
	TakenNames       string // table, name
	FinishDetach     string
	UnmarkDropped    string
	ListMarked       string // table, whether they are partitions
	Dependents       string // partition
	DropTable        string
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

// gone reports whether an error says that the transaction, or the connection
// under it, is no more.
func (d *Dialect) gone(err error) bool {
	return errors.Is(err, sql.ErrTxDone) || d.lost(err)
}

// lost reports whether an error says that the connection is no more.
func (d *Dialect) lost(err error) bool {
	return errors.Is(err, driver.ErrBadConn) || errors.Is(err, sql.ErrConnDone) ||
		err != nil && d.lostConnection != "" && strings.HasSuffix(err.Error(), d.lostConnection)
}

// EndsTransaction reports whether the server ends the whole transaction, or the
// connection, with an error of this kind.
func (d *Dialect) EndsTransaction(err error) bool {
	if d.gone(err) {
		return true
	}
	switch state := sqlState(err); {
	case len(state) != 5:
	case state[:2] == "08", // connection exception
		state == "57P01", state == "57P02", state == "57P03", // the server shuts down or ends the session
		state == "25P03", state == "25P04": // idle in transaction too long, transaction too long
		return true
	}
	return d.endsTransaction != nil && d.endsTransaction(err)
}
