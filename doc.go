// Package outbox is the home of a write-only transactional outbox: a change in
// one aggregate reliably causes follow-up work in another. Every committed
// event is delivered, in order per aggregate, and takes effect exactly once.
//
// There is no code here. Start with package events, which has the Publisher and
// the Dispatcher, and with the package for your data layer: gormtx for GORM,
// sqltx for database/sql, pgxtx for pgx, memstore for tests. Package persistence
// holds the contracts between them. Package eventstest helps to test your handlers,
// and package outboxtest proves a store that you write yourself. The tables are in package schema.
package outbox
