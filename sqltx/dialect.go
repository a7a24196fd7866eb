package sqltx

// Dialect names a kind of database.
type Dialect string

const (
	// Postgres is PostgreSQL.
	Postgres Dialect = "postgres"
	// MySQL is MySQL and MariaDB. The server says which.
	MySQL Dialect = "mysql"
	// SQLite is SQLite.
	SQLite Dialect = "sqlite"
)
