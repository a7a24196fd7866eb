// Package sqltx is the outbox for services that use database/sql, by hand or
// through generated code such as sqlc's, on PostgreSQL, MySQL, MariaDB and
// SQLite. It imports nothing but the standard library.
//
// [New] returns everything at once:
//
//	outbox := sqltx.New(db, sqltx.Postgres)
//	if err := outbox.Migrate(ctx); err != nil { ... }
//	publisher := events.NewPublisher(outbox)
//	dispatcher := events.NewDispatcher(outbox, outbox, outbox, outbox)
//
// Inside Atomically, repositories and handlers reach the transaction with
// [Tx], or with [DB] where they also work outside of one. What they get is a
// [DBTX], as generated code asks for one. [Outbox.WithTx] enlists in a
// transaction that was begun otherwise: a *sql.Tx, or what another library
// makes of it, as ent does, which docs/faces.md shows.
//
// [RunRetention] drops what has been settled for long enough; call it from a
// scheduled job.
//
// # Drivers
//
// The tests run with these. Others may serve; the conformance suite
// (package outboxtest) tells.
//
//   - PostgreSQL: github.com/jackc/pgx/v5/stdlib and github.com/lib/pq. Behind a
//     pooler that hands out a server connection for one transaction at a time,
//     pgx may not keep prepared statements: add default_query_exec_mode=exec to
//     the DSN. The dispatcher has to be connected to the primary.
//   - MySQL and MariaDB: github.com/go-sql-driver/mysql, with charset=utf8mb4
//     in the DSN.
//   - SQLite: modernc.org/sqlite, and github.com/mattn/go-sqlite3, which needs
//     cgo.
//
// Package gormtx says what else there is to know about each database. It holds
// here as well.
//
// # Beside GORM
//
// A service that uses GORM in one place and database/sql in another may use
// both faces over one pool: the *sql.DB of its *gorm.DB. Either takes part in
// the transactions of the other, and [Tx] and [DB] return those, too. Two
// pools of one database share its tables, though no transaction: what one
// publishes the other dispatches.
package sqltx
