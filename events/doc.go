// Package events records domain events in the transaction of the change that
// caused them, and delivers them to handlers: every committed event, in order
// per aggregate, with an effect that happens exactly once.
//
// A [Publisher] appends to the outbox in the transaction that the context
// carries, and refuses to work outside of one. A [Dispatcher] reads the outbox
// forward from a cursor and runs each subscribed handler in a transaction of
// its own:
//
//	              one transaction                    one transaction a handler
//	┌──────────────────────────────────┐      ┌────────────────────────────────────┐
//	│ change an aggregate → Publish    │      │ marker → handler changes another   │
//	└────────────────┬─────────────────┘      └──────────────────▲─────────────────┘
//	                 ▼                                           │
//	           outbox table ──── ReadAfter(cursor) ────► Dispatcher ────► cursor
//
// The outbox table is write-only. The cursor, failure counts and dead letters
// are in sidecar tables; see package persistence for the contracts, and
// gormtx or memstore for implementations.
//
// # What a handler can rely on
//
// The handler's context carries its transaction. The marker of the event and
// the handler is written in it first, so when the handler runs, its effect has
// not been committed before, and when it commits, nobody can commit it again.
// What it does outside of the transaction may happen more than once.
//
// Events of one aggregate arrive in the order in which their transactions
// committed, given that those write the aggregate before they publish. Across
// aggregates there is no order. An event refers to its aggregate by id: reload
// what you need, in the handler's transaction.
//
// # Failures
//
// A handler that fails is tried again. After [WithMaxAttempts] failures the
// event becomes a dead letter for that handler, and the cursor moves on. Until
// then the dispatcher stops at the event; the event's other handlers have run.
//
// # Logs
//
// [WithLogger] takes a slog.Logger. Messages are constant:
//
//	level  message                           attributes
//	WARN   outbox: handler failed            dispatcher, event_id, event_type, aggregate_type, aggregate_id, handler, attempts, max_attempts, error
//	ERROR  outbox: event dead-lettered       the same
//	ERROR  outbox: pass failed               dispatcher, error
//
// Payloads are never logged.
package events
