package persistence

import "context"

// OutboxCDCConsumer takes the records that a change-data-capture engine finds
// in the database's log: PostgreSQL's WAL, MySQL's binlog, Debezium. It is the
// seam for projects that deliver events to other services; the library has no
// implementation and depends on no broker.
//
// The outbox is write-only, so an engine sees nothing but inserts and the drop
// of partitions, and passes on the inserts, each transaction's in its order,
// transactions in the order of their commits.
type OutboxCDCConsumer interface {
	// Consume takes the records of whole transactions. Position is the
	// engine's own and opaque: the place in the log right after them. Calls
	// follow one another.
	//
	//   - A nil error means that the records are durably taken over, together
	//     with the position.
	//   - After an error, or a crash, the engine starts again at Position, so
	//     records may arrive more than once; the record's id tells.
	//   - Without records only the position moves, past what the rest of the
	//     database has written, so that the log behind it can be let go while
	//     the outbox is idle.
	Consume(ctx context.Context, records []Record, position []byte) error

	// Position returns the position of the last Consume that succeeded, which
	// is where the engine goes on from, or nil at the beginning.
	Position(ctx context.Context) ([]byte, error)
}
