// Package persistence holds the contracts of the outbox: what the publisher
// and the dispatcher in package events ask of a database, and what a database
// promises in return.
//
// # The contracts
//
//   - [Transactor] runs a function in a transaction that travels in the
//     context.
//   - [OutboxStore] appends events in that transaction and reads committed
//     ones forward. The outbox table is write-only: nothing but Append and
//     retention's partition drop ever writes to it.
//   - [OutboxCursorStore] keeps a dispatcher's position, lease, failure counts
//     and dead letters in sidecar tables. [CursorAdmin] is the operator's view
//     of the same tables; [DeadLetterStore] is a part of it that operators use,
//     too.
//   - [IdempotencyStore] keeps the markers that make an effect happen once.
//   - [DedupStore] keeps the keys that let a command which is tried again emit
//     one event.
//   - [StatusReader] tells operators where an outbox and its dispatchers stand, and
//     [Validator] what is wrong before the work begins.
//   - [OutboxInspector] is for operators who ask what has become of an event.
//   - [OutboxRetention] drops old partitions.
//   - [OutboxCDCConsumer] is for projects that tail the outbox table from the
//     database's log. The library ships no implementation.
//
// Each rule that a store has to keep stands in the comment of the method that
// it binds, and package outboxtest holds a check for each of them.
//
// # Writing a Transactor
//
// [Atomically] holds the protocol: savepoints for nested calls, rollback on
// error, panic and runtime.Goexit, hooks after the commit. A backend brings a
// [Tx] and a function that begins one, and finds its transaction again with
// [Current]. [Join] enlists in a transaction that somebody else began.
package persistence
