// Package gormtx is the outbox for services that use GORM, on PostgreSQL, MySQL,
// MariaDB and SQLite.
//
// [New] returns everything at once:
//
//	outbox := gormtx.New(db)
//	if err := outbox.Migrate(ctx); err != nil { ... }
//	publisher := events.NewPublisher(outbox)
//	dispatcher := events.NewDispatcher(outbox, outbox, outbox, outbox)
//
// Inside Atomically, repositories and handlers reach the transaction with
// [Tx], or with [DB] where they also work outside of one. [WithTx] enlists in
// a transaction that was opened with GORM itself.
//
// [RunRetention] drops what has been settled for long enough; call it from a
// scheduled job.
//
// # PostgreSQL
//
// All modes of GORM's driver serve. Behind a pooler that hands out a server
// connection for one transaction at a time, such as PgBouncer's, the driver may
// not keep prepared statements: add default_query_exec_mode=exec to the DSN.
// Otherwise a dispatcher's transaction commits in the round trip in which the next
// one begins.
// The dispatcher has to be connected to the primary.
//
// # MySQL and MariaDB
//
// The DSN may set loc, parseTime, time_zone, sql_mode, clientFoundRows,
// interpolateParams and either isolation level, READ COMMITTED or REPEATABLE
// READ. DDL commits by itself there, so Migrate is no transaction, but can be
// run again after a failure. Unless the driver interpolates, the library's own
// statements stay prepared on each connection. A row that is inserted by hand has
// no stamp and is refused. After a deadlock or a lock wait timeout the transaction
// is dead: InnoDB may have rolled it back as a whole. Prefer READ COMMITTED for
// producers that roll savepoints back: under REPEATABLE READ, MySQL keeps a gap
// lock where the event was, and other producers wait until the transaction
// ends.
//
// # SQLite
//
// Both drivers serve: gorm.io/driver/sqlite as it is, which needs cgo, and with
// DriverName "sqlite" and an import of modernc.org/sqlite, which does not. Open
// the database with a busy timeout and, where it is a file, in WAL mode. A
// database in memory is one a connection, so it needs a pool of one.
// Transactions begin with BEGIN IMMEDIATE: there is one writer at a time.
package gormtx
