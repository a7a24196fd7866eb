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
//	           outbox table ────── read forward ───────► Dispatcher ────► cursor
//
// The outbox table is write-only. The cursor, failure counts and dead letters
// are in sidecar tables; see package persistence for the contracts, and
// gormtx or memstore for implementations.
//
// A command that is tried again publishes its event again. An event with a
// DedupKey is refused then; see docs/dedup.md.
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
// # Lanes
//
// Events of one aggregate are delivered one after the other, those of different
// aggregates in parallel ([WithConcurrency]). Every visible event is delivered at
// once; only the durable cursor waits, for what is not settled and for what may
// still appear before it. So neither a failing event nor a producer that keeps
// its transaction open delays another aggregate, within a window ([WithWindow]).
//
// # Replicas
//
// Any number of replicas may run a dispatcher of the same name. One holds the
// lease and works, the others stand by ([WithLease]). During a rolling deploy a
// handler gets what an older holder, which does not know it, has passed.
//
// # Failures
//
// A handler that fails is tried again after a back-off ([WithBackoff]). After
// [WithMaxAttempts] failures, or one that is [Permanent], the event becomes a
// dead letter for that handler, and its aggregate goes on. What is not the
// event's fault, such as a deadlock or a lost connection, spends no attempt.
//
// [DeadLetters] lists, requeues, discards and purges dead letters;
// [Dispatcher.Replay] applies the handler to one of them, and the dispatcher does
// so by itself to those that are requeued. A replay takes effect once, as a
// delivery does, but keeps no order.
//
// # Logs
//
// [WithLogger] takes a slog.Logger. Messages are constant; docs/observability.md
// lists them with their attributes. Payloads are never logged. [WithObserver] tells of
// what happens, and [Dispatcher.Status] of where it stands.
package events
