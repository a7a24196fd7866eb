// Package memstore is the outbox in memory: for tests, for development, and as
// the reference that says what the contracts of package persistence mean.
//
// A [Store] is transactional. A rollback forgets, nested calls of Atomically
// are savepoints, and events are stamped at commit, so that they are visible
// in the order of their stamps. Two transactions that write the same row of a
// [Table], or the same marker, wait for each other as they would in a
// database; a deadlock ends one of them.
//
// A Store implements every contract that a dispatcher needs:
//
//	store := memstore.New()
//	publisher := events.NewPublisher(store)
//	dispatcher := events.NewDispatcher(store, store, store, store)
//
// Nothing survives the process.
package memstore
