package persistence

import (
	"context"
	"slices"
	"time"
)

// StatusReader tells an operator where an outbox and its dispatchers stand. A
// cursor store may implement it, too. It writes nothing, takes no lock that
// anybody waits for, and never returns a payload.
type StatusReader interface {
	// ReadStatus returns the state of the outbox and of the named dispatchers, or
	// of all of them, by name.
	//
	//   - A named dispatcher that does not exist is [ErrNotFound], beside which the status
	//     has the outbox and the dispatchers that were found.
	//   - A part that cannot be read (for want of a privilege, or within the server's
	//     time-outs) is empty, and named in [OutboxStatus.Unread]; the rest is told. An
	//     error is that of a context that has ended, of a server that does not answer or is
	//     no primary, and of tables that are not those of this version.
	//   - It costs the same whatever the outbox holds: what can be many is counted
	//     up to [MaxStatusCount], and listed up to [MaxStatusItems].
	//   - It reads one thing after the other, so what it returns is no snapshot.
	//   - It works outside of any transaction that ctx carries. It asks the
	//     primary ([ErrNotPrimary]).
	ReadStatus(ctx context.Context, dispatchers ...string) (Status, error)
}

const (
	// MaxStatusCount bounds what a [Status] counts.
	MaxStatusCount = 10_000
	// MaxStatusItems bounds each list in a [Status] that can grow without bounds.
	MaxStatusItems = 100
)

// Status is what [StatusReader.ReadStatus] returns. Times are UTC, by the
// database's clock.
type Status struct {
	OutboxStatus
	Dispatchers []DispatcherStatus `json:"dispatchers"`
}

// OutboxStatus is the state of an outbox, which its dispatchers share.
type OutboxStatus struct {
	// Now is the database's clock.
	Now time.Time `json:"now"`
	// Mark is the safe mark, before which no event can appear any more, and up to
	// which a cursor may move. It is zero, and left out, as long as the store
	// cannot tell: MySQL and MariaDB do not while a producer is open that has been
	// so since before this process first asked.
	Mark time.Time `json:"mark,omitzero"`
	// MarkAge is how long ago Mark was, in seconds, if a producer holds it back, and
	// 0 where none does.
	MarkAge Seconds `json:"mark_age_seconds"`
	// Producers are the open transactions that hold the mark back, the oldest
	// first, at most [MaxStatusItems]. A store that cannot name them lists those
	// that have been open for more than a second.
	Producers []ProducerStatus `json:"producers"`
	// Partitions are the tables that have partitions, and how far these last.
	Partitions []PartitionStatus `json:"partitions"`
	// Unread are the parts that could not be read.
	Unread []UnreadPart `json:"unread,omitempty"`
}

// UnreadPart is a part of a [Status] that could not be read. Its fields are empty, which
// says nothing of what there is.
type UnreadPart struct {
	Part StatusPart `json:"part"`
	// Of is the table, or the dispatcher, whose part it is. It is empty, and left out, if
	// it is the part of all.
	Of string `json:"of,omitempty"`
	// Error says why.
	Error string `json:"error"`
}

// StatusPart is what is read of a [Status] by itself.
type StatusPart string

const (
	StatusMark        StatusPart = "mark"         // Mark and MarkAge
	StatusProducers   StatusPart = "producers"    // Producers, and MarkAge, which needs them
	StatusPartitions  StatusPart = "partitions"   // of a table
	StatusDispatchers StatusPart = "dispatchers"  // which there are, with cursor and lease, and all that is told of each
	StatusAfter       StatusPart = "after"        // After, Oldest and OldestAge
	StatusFailing     StatusPart = "failing"      // Failing and FailingCount
	StatusDeadLetters StatusPart = "dead_letters" // DeadLetters
	StatusBehind      StatusPart = "behind"       // Behind
	StatusLag         StatusPart = "lag"          // the lag, which a dispatcher itself tells
)

// IsUnread reports whether a part could not be read: of all, or of the table or the
// dispatcher that is named. With no name it is that of any.
func (s OutboxStatus) IsUnread(part StatusPart, of string) bool {
	return slices.ContainsFunc(s.Unread, func(u UnreadPart) bool {
		return u.Part == part && (of == "" || u.Of == "" || u.Of == of)
	})
}

// ProducerStatus is a transaction that has published and is open. What the store
// cannot tell is zero, and left out.
type ProducerStatus struct {
	// Began is when the transaction began, or when it had surely not published yet.
	Began time.Time `json:"began,omitzero"`
	// Age is how long ago that was, in seconds.
	Age Seconds `json:"age_seconds,omitzero"`
	// PID is the server's name for the session: the process on PostgreSQL, the
	// connection on MySQL and MariaDB.
	PID int64 `json:"pid,omitzero"`
	// Client is the session's application_name on PostgreSQL, its user and host on
	// MySQL and MariaDB.
	Client string `json:"client,omitzero"`
	// State is what the session does, as the server puts it.
	State string `json:"state,omitzero"`
	// Prepared is the name of a prepared transaction, which has no session.
	Prepared string `json:"prepared,omitzero"`
	// Suspected says that the server does not tell who it is: it is one of the
	// suspects. So it is on MariaDB, where each open transaction of the database
	// that has written is listed.
	Suspected bool `json:"suspected,omitzero"`
}

// PartitionStatus is how far the partitions of a table last.
type PartitionStatus struct {
	// Table is the outbox, or the table of markers.
	Table string `json:"table"`
	// From is the beginning of the oldest partition: what was stamped before has been
	// dropped. It is zero, and left out, if that has none: nothing has been dropped yet, or
	// the server keeps no beginnings, as MySQL and MariaDB.
	From time.Time `json:"from,omitzero"`
	// Through is the end of the last month that has a partition of its own. What is
	// stamped later goes to the open-ended last partition.
	Through time.Time `json:"through"`
	// Ahead is how long that is from now, in seconds; below 0 when it is past.
	Ahead Seconds `json:"ahead_seconds"`
	// Detaching are partitions that retention has begun to drop and not dropped
	// yet. Nothing can be written to their range meanwhile; the next run of
	// retention ends it.
	Detaching []string `json:"detaching,omitempty"`
	// RefusesFrom is an end that a run of retention has given the open-ended partition
	// and was killed before it took it back: events from there on are refused. The next
	// run of retention ends it. It is zero, and left out, if there is none.
	RefusesFrom time.Time `json:"refuses_from,omitzero"`
}

// DispatcherStatus is what a store knows of a dispatcher.
type DispatcherStatus struct {
	Dispatcher string `json:"dispatcher"`
	// Cursor is the position of the last settled event.
	Cursor Cursor `json:"cursor"`
	// Lease is the lease as it stands.
	Lease LeaseStatus `json:"lease"`
	// After is the number of events after the cursor. Some may have been delivered:
	// the cursor waits for events before them that are not settled, and for the
	// mark.
	After Count `json:"after"`
	// Oldest is the first of them, or nil.
	Oldest *Cursor `json:"oldest,omitempty"`
	// OldestAge is how long ago that was stamped, in seconds.
	OldestAge Seconds `json:"oldest_age_seconds"`
	// Failing are the deliveries that have failed and are not settled, in the order
	// of their events, at most [MaxStatusItems].
	Failing []Attempt `json:"failing"`
	// FailingCount is the number of them.
	FailingCount Count `json:"failing_count"`
	// DeadLetters is the number of dead letters in each state that has some.
	DeadLetters map[DeadLetterState]Count `json:"dead_letters"`
	// Behind are the subscriptions that have been left behind.
	Behind []SubscriptionState `json:"behind"`
}

// LeaseStatus is a lease and whether somebody holds it.
type LeaseStatus struct {
	// Owner is who has taken it last, empty for nobody.
	Owner string `json:"owner"`
	Token int64  `json:"token"`
	// Expires is when it ends; zero, and left out, if it was released.
	Expires time.Time `json:"expires,omitzero"`
	// Held says that it has an owner and has not expired.
	Held bool `json:"held"`
	// Unclean says that the former owner let its lease expire instead of releasing
	// it.
	Unclean bool `json:"unclean"`
}

// Count is a number that is counted up to a bound.
type Count struct {
	N int `json:"n"`
	// More says that there are more than N.
	More bool `json:"more,omitempty"`
}

// CountTo returns a count of n, of which at most most are counted, for authors of
// stores.
func CountTo(n, most int) Count {
	return Count{N: min(n, most), More: n > most}
}

// Status returns the lease's status at a time of the database's clock, for authors
// of stores.
func (l Lease) Status(now time.Time) LeaseStatus {
	return LeaseStatus{
		Owner: l.Owner, Token: l.Token, Expires: l.ExpiresTime, Unclean: l.Unclean,
		Held: l.Owner != "" && l.ExpiresTime.After(now),
	}
}

// Age returns how long ago the position was stamped, at a time of the database's
// clock; at least 0.
func (c Cursor) Age(now time.Time) Seconds { return Seconds(max(0, now.Sub(c.CreatedTime))) }
