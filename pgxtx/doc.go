// Package pgxtx is the outbox for services that use pgx, by hand or through
// generated code such as sqlc's, on PostgreSQL. It runs on a *pgxpool.Pool
// itself, without database/sql in between.
//
// [New] returns everything at once:
//
//	outbox := pgxtx.New(pool)
//	if err := outbox.Migrate(ctx); err != nil { ... }
//	publisher := events.NewPublisher(outbox)
//	dispatcher := events.NewDispatcher(outbox, outbox, outbox, outbox)
//
// Inside Atomically, repositories and handlers reach the transaction with
// [Tx], or with [DB] where they also work outside of one. What they get is a
// pgx.Tx, or a [DBTX], as generated code asks for one. [Outbox.WithTx] enlists
// in a transaction that was begun with pgx itself.
//
// A transaction begins with its first statement, in the same round trip, if that is
// one of the outbox's, as a handler's is, or an Exec with arguments. So a change and
// the event about it are three round trips, with the COMMIT. Any other one begins it
// in a round trip of its own. A transaction that runs no statement never begins.
// Tracers of pgx see such a first statement as one of a batch.
//
// A dispatcher's transaction commits in the round trip in which the next one begins,
// if there is one by then, so that an event costs two round trips: its marker, and
// the statement of a handler that has one. A connection must prepare statements for
// that, as pgx does unless it is told otherwise.
//
// [RunRetention] drops what has been settled for long enough; call it from a
// scheduled job.
//
// # Other processes
//
// events.WithNotify(dispatcher.Wake) wakes the dispatcher of the process that
// publishes. A [Notifier] there and [Listen] at the dispatcher do the same from
// one process to another, by NOTIFY and LISTEN. They shorten the wait for the
// next poll, and nothing depends on them: a notification that is lost costs one
// poll interval.
//
//	notifier := pgxtx.NewNotifier(pool)
//	publisher := events.NewPublisher(outbox, events.WithNotify(notifier.Notify))
//
//	go pgxtx.Listen(ctx, pool, dispatcher.Wake)
//
// # Poolers
//
// Behind a pooler that hands out a server connection for one transaction at a
// time, pgx may not keep prepared statements: add default_query_exec_mode=exec,
// or simple_protocol, to the connection string. Listen needs a session of its
// own, so its pool has to lead around such a pooler. The dispatcher has to be
// connected to the primary.
//
// # The pool
//
// The dispatcher needs a connection for each lane and two more. Its default
// concurrency follows the pool's limit, which is pgx's to set (pool_max_conns;
// the default is 4, or the number of processors if that is greater).
//
// Package gormtx says what else there is to know about PostgreSQL. It holds here
// as well. A process may use other faces beside this one. They share its tables,
// though no transaction: what one publishes the other dispatches.
package pgxtx
