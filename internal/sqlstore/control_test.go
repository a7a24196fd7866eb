package sqlstore

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestStatementsThatEndTheTransactionAreTold(t *testing.T) {
	all := []*Dialect{Postgres, MySQL, SQLite}
	for _, c := range []struct {
		query string
		on    []*Dialect // where it ends the transaction
	}{
		{"COMMIT", all}, {" commit; ", all}, {"COMMIT/* now */", all}, {"/* now */ -- really\n;COMMIT", all},
		{"/* a /* nested */ one */ COMMIT", all}, {"/* not /* nested */ COMMIT", all},
		{"END", all}, {"ROLLBACK", all}, {"rollback work", all}, {"BEGIN", all}, {"BEGIN IMMEDIATE", all},
		{"START/**/TRANSACTION READ ONLY", all}, {"PREPARE TRANSACTION 'x'", all},
		{"ROLLBACK TO a", nil}, {"ROLLBACK WORK TO SAVEPOINT a", nil}, {"SAVEPOINT a", nil}, {"RELEASE SAVEPOINT a", nil},
		{"PREPARE p FROM 'COMMIT'", nil}, {"", nil}, {";", nil}, {"--", nil}, {"/* COMMIT", nil}, {"'COMMIT'", nil},
		{"SELECT 1 /* COMMIT */", nil}, {"UPDATE commits SET a = 1", nil}, {"(SELECT 1)", nil},
	} {
		for _, d := range all {
			require.Equal(t, c.on != nil, d.EndsByStatement(c.query), "%s: %s", d.Name, c.query)
		}
	}
	// What MySQL and MariaDB do with these is in TestMySQLStatementsThatCommitAreRefused.
	for _, query := range []string{
		"CREATE TABLE t (a INT)", "/*!40101 CREATE TABLE t (a INT) */", "/*M! CREATE TABLE t (a INT) */", "# x\nDROP TABLE t",
		"TRUNCATE t", "LOCK TABLES t READ", "SET autocommit = 0", "SET @@session.autocommit=1", "SET @a = 1, SESSION autocommit = ON",
	} {
		require.True(t, MySQL.EndsByStatement(query), query)
		require.False(t, Postgres.EndsByStatement(query), query)
		require.False(t, SQLite.EndsByStatement(query), query)
	}
	require.False(t, MySQL.EndsByStatement("SET @a = 'autocommit'"))
}

func TestMySQLIsAskedAfterStatementsThatMayHaveEndedTheTransaction(t *testing.T) {
	for _, c := range []struct {
		query string
		rows  bool
		want  bool
	}{
		{"SELECT * FROM users WHERE id = 1 FOR UPDATE", true, true},
		{"select * from users where id = 1 for\nshare", true, true},
		{"(SELECT 1 FROM users LOCK IN SHARE MODE)", true, true},
		{"WITH u AS (SELECT 1) SELECT * FROM users FOR UPDATE SKIP LOCKED", true, true},
		{"INSERT INTO users VALUES (1) RETURNING id", true, true},
		{"CALL p()", true, true}, {"CALL p()", false, true}, {"EXECUTE p", false, true},
		{"UPDATE users SET a = 1; COMMIT", false, true},

		{"SELECT updated_at, shared FROM users", true, false},
		{"SELECT * FROM users FOR UPDATE", false, false}, // whose error is seen
		{"UPDATE users SET a = 1;\n", false, false}, {"INSERT INTO users VALUES (1)", false, false},
		{"SHOW TABLES", true, false}, {"", true, false},
	} {
		require.Equal(t, c.want, MySQL.MayHaveEnded(c.query, c.rows), c.query)
	}
}

func TestStatementsThatSetWhatATransactionIsAreTold(t *testing.T) {
	for _, query := range []string{
		"SET TRANSACTION READ ONLY", " set local transaction_isolation = 'serializable'", "SET search_path = a; SET TRANSACTION DEFERRABLE",
		"/* a */ SET SESSION transaction_read_only TO on",
	} {
		require.True(t, SetsTransaction(query), query)
	}
	for _, query := range []string{"", "SET LOCAL lock_timeout = 1", "SELECT 'SET TRANSACTION READ ONLY'", "UPDATE a SET transaction_id = 1"} {
		require.False(t, SetsTransaction(query), query)
	}
}
