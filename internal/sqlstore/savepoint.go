package sqlstore

// Statements that are the same on every database. Savepoint names are plain
// identifiers.

// Savepoint marks a point in the transaction.
func Savepoint(name string) string { return "SAVEPOINT " + name }

// RollbackTo takes back what was written since the savepoint.
func RollbackTo(name string) string { return "ROLLBACK TO SAVEPOINT " + name }

// ReleaseSavepoint forgets the savepoint.
func ReleaseSavepoint(name string) string { return "RELEASE SAVEPOINT " + name }

// Rollback ends a transaction that was begun by a statement.
const Rollback = "ROLLBACK"
