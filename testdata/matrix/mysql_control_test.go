package matrix

import (
	"context"
	"database/sql"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"gorm.io/driver/mysql"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/gormtx"
	"github.com/onward-go/outbox/internal/sqlstore"
	"github.com/onward-go/outbox/persistence"
)

// Whatever the server says to a statement that commits implicitly, the
// transaction is over; it must not run inside of Atomically. The servers say
// which statements these are.
func TestMySQLStatementsThatCommitAreRefused(t *testing.T) {
	commits := lines(`
		CREATE TABLE made (id INT)
		/*!40101 CREATE TABLE IF NOT EXISTS made (id INT) */
		-- a comment
		CREATE INDEX i ON made (id)
		ALTER TABLE made COMMENT 'x'
		TRUNCATE TABLE made
		RENAME TABLE made TO moved
		ANALYZE TABLE untouched
		CHECK TABLE untouched
		OPTIMIZE TABLE untouched
		REPAIR TABLE untouched
		FLUSH LOCAL STATUS
		DROP TABLE moved
		CREATE VIEW seen AS SELECT 1
		DROP VIEW seen
		CREATE PROCEDURE nothing() DO 1
		DROP PROCEDURE nothing
		DROP DATABASE IF EXISTS outbox_test_never_made
		DROP USER nobody_at_all
		GRANT SELECT ON *.* TO nobody_at_all
		REVOKE SELECT ON *.* FROM nobody_at_all
		INSTALL PLUGIN nothing SONAME 'nothing.so'
		UNINSTALL PLUGIN nothing
		SET PASSWORD FOR nobody_at_all = 'x'
		LOCK TABLES untouched READ
		LOCK TABLE untouched WRITE
	`)
	stays := lines(`
		SELECT 1
		CREATE TEMPORARY TABLE mine (id INT)
		DROP TEMPORARY TABLE mine
		PREPARE p FROM 'DO 1'
		EXECUTE p
		DROP PREPARE p
		UNLOCK TABLES
		SET @a = 1
		DO 1
		CHECKSUM TABLE untouched
		SAVEPOINT a
		INSERT INTO untouched VALUES (1)
		LOAD DATA INFILE 'nothing' INTO TABLE untouched
	`)
	onMySQL(t, func(t *testing.T, dsn string) {
		db := Open(t, mysql.Open(dsn), &gorm.Config{Logger: logger.Discard})
		require.NoError(t, db.Exec("CREATE TABLE untouched (id INT) ENGINE=InnoDB").Error)
		outbox := gormtx.New(db)
		require.NoError(t, outbox.Migrate(t.Context()))
		pool, err := db.DB()
		require.NoError(t, err)
		conn, err := pool.Conn(t.Context())
		require.NoError(t, err)
		defer conn.Close()
		for _, statement := range append(commits, stays...) {
			run(t, conn, "START TRANSACTION")
			_, _ = conn.ExecContext(t.Context(), statement) // it may well fail
			_, err := conn.ExecContext(t.Context(), sqlstore.MySQL.ProbeOpen)
			require.Equal(t, err == nil, sqlstore.MySQL.EndsByStatement(statement), "%s: %v", statement, err)
			run(t, conn, "UNLOCK TABLES")
			run(t, conn, "ROLLBACK")
		}
		require.NoError(t, outbox.Atomically(t.Context(), func(ctx context.Context) error {
			for _, statement := range append(commits, "SET autocommit = 1", "COMMIT") {
				require.ErrorIs(t, gormtx.Tx(ctx).Exec(statement).Error, persistence.ErrInTransaction, statement)
			}
			return events.NewPublisher(outbox).Publish(ctx, newEvents(1)...)
		}))
		requireRows(t, db, "outbox", 1)
	})
}

func lines(text string) []string {
	var all []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "--") {
			all = append(all, line)
		}
	}
	return all
}

func run(t *testing.T, conn *sql.Conn, statement string) {
	t.Helper()
	_, err := conn.ExecContext(t.Context(), statement)
	require.NoError(t, err)
}

func requireRows(t *testing.T, db *gorm.DB, table string, want int) {
	t.Helper()
	var n int64
	require.NoError(t, db.Table(table).Count(&n).Error)
	require.EqualValues(t, want, n)
}
