package matrix

import (
	"context"
	"errors"
	"testing"

	driver "github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"
	"gorm.io/driver/mysql"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
	"gorm.io/gorm/logger"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/gormtx"
	"github.com/onward-go/outbox/persistence"
	"github.com/onward-go/outbox/testdata/servers"
)

type counter struct {
	ID  int
	N   int
	Pad string
}

// A deadlock may strike when the first rows of a result have arrived. Its error
// goes to whoever reads the rows, and past us.
func TestMySQLDeadlockWhileAResultIsReadEndsTheTransaction(t *testing.T) {
	t.Parallel()
	locked := clause.Locking{Strength: "UPDATE"}
	for name, read := range map[string]func(tx *gorm.DB, began func()) error{
		"rows": func(tx *gorm.DB, began func()) error {
			rows, err := tx.Model(&counter{}).Clauses(locked).Where("id > 0").Order("id").Rows()
			require.NoError(t, err)
			defer rows.Close()
			for n := 0; rows.Next(); n++ {
				if n == 0 {
					began() // far from the end, where the other one's lock is
				}
			}
			return rows.Err()
		},
		"find": func(tx *gorm.DB, began func()) error {
			began()
			return tx.Clauses(locked).Where("id > 0").Order("id").Find(&[]counter{}).Error
		},
		"row": func(tx *gorm.DB, began func()) error {
			began()
			return tx.Raw("SELECT id FROM counters WHERE pad <> '' ORDER BY id DESC LIMIT 1 FOR UPDATE").Row().Scan(new(int))
		},
		"prepared": func(tx *gorm.DB, began func()) error {
			began()
			return tx.Session(&gorm.Session{PrepareStmt: true}).Model(&counter{}).Where("id = ?", last).Update("n", 1).Error
		},
		"procedure": func(tx *gorm.DB, began func()) error {
			began()
			return tx.Exec("CALL touch()").Error
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onMySQL(t, func(t *testing.T, dsn string) {
				for _, config := range []gorm.Config{{}, {PrepareStmt: true}} {
					config.Logger = logger.Discard
					db := Open(t, mysql.Open(dsn), &config)
					outbox := newCounters(t, dsn, db)
					var readErr, publishErr, writeErr error
					err := outbox.Atomically(t.Context(), func(ctx context.Context) error {
						other := counterpart(t, db)
						require.NoError(t, gormtx.Tx(ctx).Exec("INSERT INTO counters VALUES (0, 0, 'mine')").Error)
						readErr = read(gormtx.Tx(ctx), other.wantMine)
						publishErr = events.NewPublisher(outbox).Publish(ctx, newEvents(1)...)
						writeErr = gormtx.Tx(ctx).Session(&gorm.Session{PrepareStmt: true}).Exec("INSERT INTO counters VALUES (-1, 0, 'alone')").Error
						require.NoError(t, other.end())
						return nil // the error is swallowed
					})
					if name != "procedure" {
						require.Error(t, readErr)
					}
					require.ErrorIs(t, publishErr, persistence.ErrNoTransaction)
					require.Error(t, writeErr)
					require.Error(t, err)
					requireRows(t, db, "outbox", 0)
					requireRows(t, db, "counters", last)
				}
			})
		})
	}
}

// last is the row that the counterpart holds.
const last = 900

func newCounters(t *testing.T, dsn string, db *gorm.DB) *gormtx.Outbox {
	plain := Open(t, mysql.Open(dsn), &gorm.Config{Logger: logger.Discard}) // there is DDL that cannot be prepared
	outbox := gormtx.New(db)
	require.NoError(t, outbox.Migrate(t.Context()))
	for _, statement := range []string{
		"DROP TABLE IF EXISTS counters, weights",
		"DROP PROCEDURE IF EXISTS touch",
		"CREATE TABLE counters (id INT PRIMARY KEY, n INT NOT NULL, pad VARCHAR(400) NOT NULL) ENGINE=InnoDB",
		"INSERT INTO counters WITH RECURSIVE c (id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM c WHERE id < 900) SELECT id, 0, REPEAT('x', 400) FROM c",
		"CREATE TABLE weights (id INT PRIMARY KEY) ENGINE=InnoDB",
		"CREATE PROCEDURE touch() BEGIN DECLARE CONTINUE HANDLER FOR SQLEXCEPTION DO 0; UPDATE counters SET n = n + 1 WHERE id = 900; END",
	} {
		require.NoError(t, plain.Exec(statement).Error)
	}
	return outbox
}

// other is a transaction that holds the last counter. It has written more, so
// that in a deadlock InnoDB takes the other one's back.
type other struct {
	tx   *gorm.DB
	done chan error
}

func counterpart(t *testing.T, db *gorm.DB) *other {
	o := &other{db.Begin(), make(chan error, 1)}
	require.NoError(t, o.tx.Error)
	require.NoError(t, o.tx.Exec("INSERT INTO weights WITH RECURSIVE c (id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM c WHERE id < 900) SELECT id FROM c").Error)
	require.NoError(t, o.tx.Exec("UPDATE counters SET n = 1 WHERE id = ?", last).Error)
	return o
}

// wantMine asks for the row that the transaction under test has made. Whoever
// comes second closes the circle.
func (o *other) wantMine() {
	go func() { o.done <- o.tx.Exec("UPDATE counters SET n = 1 WHERE id = 0").Error }()
}

func (o *other) end() error {
	if err := <-o.done; err != nil {
		return err
	}
	return o.tx.Rollback().Error
}

// Of a transaction that was opened elsewhere we do not see the statements, so the
// server is asked.
func TestMySQLDeadlockInATransactionOpenedElsewhereEndsIt(t *testing.T) {
	t.Parallel()
	onMySQL(t, func(t *testing.T, dsn string) {
		for _, config := range []gorm.Config{{}, {PrepareStmt: true}} {
			config.Logger = logger.Discard
			db := Open(t, mysql.Open(dsn), &config)
			outbox := newCounters(t, dsn, db)
			tx := db.Begin()
			ctx, err := gormtx.WithTx(t.Context(), tx)
			require.NoError(t, err)
			require.NoError(t, gormtx.Tx(ctx).Exec("INSERT INTO counters VALUES (0, 0, 'mine')").Error)
			require.NoError(t, events.NewPublisher(outbox).Publish(ctx, newEvents(1)...), "it is asked, and open")
			require.NoError(t, tx.Rollback().Error)

			tx = db.Begin()
			ctx, err = gormtx.WithTx(t.Context(), tx)
			require.NoError(t, err)
			other := counterpart(t, db)
			require.NoError(t, tx.Exec("INSERT INTO counters VALUES (0, 0, 'mine')").Error)
			other.wantMine()
			require.Error(t, tx.Exec("UPDATE counters SET n = 2 WHERE id = ?", last).Error)
			require.ErrorIs(t, events.NewPublisher(outbox).Publish(ctx, newEvents(1)...), persistence.ErrNoTransaction)
			require.NoError(t, other.end())
			tx.Rollback()
			requireRows(t, db, "outbox", 0)
		}
	})
}

// Asking costs nothing where nothing may have happened.
func TestMySQLPlainReadsAndWritesCostNoQuestion(t *testing.T) {
	onMySQL(t, func(t *testing.T, dsn string) {
		db := Open(t, mysql.Open(dsn+"?interpolateParams=true"), &gorm.Config{Logger: logger.Discard})
		outbox := newCounters(t, dsn, db)
		publish(t, outbox, "first") // looks at server and tables
		questions := func(tx *gorm.DB) (n int) {
			var name string
			require.NoError(t, tx.Raw("SHOW SESSION STATUS LIKE 'Questions'").Row().Scan(&name, &n))
			return n
		}
		require.NoError(t, outbox.Atomically(t.Context(), func(ctx context.Context) error {
			tx := gormtx.Tx(ctx)
			before := questions(tx)
			require.NoError(t, tx.Where("id = ?", 1).Take(&counter{}).Error)
			require.NoError(t, tx.Exec("UPDATE counters SET n = 1 WHERE id = 1").Error)
			require.NoError(t, events.NewPublisher(outbox).Publish(ctx, newEvents(1)...))
			require.Equal(t, before+4, questions(tx))
			require.NoError(t, tx.Clauses(clause.Locking{Strength: "UPDATE"}).Where("id = ?", 1).Take(&counter{}).Error)
			require.NoError(t, tx.Exec("UPDATE counters SET n = 1 WHERE id = 1").Error)
			require.NoError(t, events.NewPublisher(outbox).Publish(ctx, newEvents(1)...))
			require.Equal(t, before+4+5, questions(tx), "one for the read that locks")
			return nil
		}))
	})
}

// What is left unread of a result that locks may hold a deadlock. So a commit
// is refused, rather than reported where there may be none.
func TestMySQLALockingReadThatIsLeftOpenIsAnError(t *testing.T) {
	onMySQL(t, func(t *testing.T, dsn string) {
		db := Open(t, mysql.Open(dsn), &gorm.Config{Logger: logger.Discard})
		outbox := newCounters(t, dsn, db)
		require.ErrorContains(t, outbox.Atomically(t.Context(), func(ctx context.Context) error {
			require.NoError(t, events.NewPublisher(outbox).Publish(ctx, newEvents(1)...))
			rows, err := gormtx.Tx(ctx).Raw("SELECT id, pad FROM counters FOR UPDATE").Rows()
			require.NoError(t, err)
			require.True(t, rows.Next())
			return nil
		}), "left open")
		requireRows(t, db, "outbox", 0)
		publish(t, outbox, "another")
		requireRows(t, db, "outbox", 1)
	})
}

// With snapshot isolation MariaDB refuses to change a row that somebody else
// has changed since the snapshot, and takes the whole transaction back.
func TestMariaDBSnapshotConflictEndsTheTransaction(t *testing.T) {
	dsn := servers.CreateDatabase(t, servers.Get(t, servers.MariaDB))
	for _, mode := range []struct {
		setting  string
		conflict bool
	}{{"ON", true}, {"OFF", false}} { // in this order, since the second one publishes

		db := Open(t, mysql.Open(dsn+"?tx_isolation=%27REPEATABLE-READ%27&innodb_snapshot_isolation="+mode.setting), &gorm.Config{Logger: logger.Discard})
		outbox := newCounters(t, dsn, db)
		var swallowed, published error
		err := outbox.Atomically(t.Context(), func(ctx context.Context) error {
			tx := gormtx.Tx(ctx)
			require.NoError(t, tx.Exec("INSERT INTO counters VALUES (0, 0, 'mine')").Error)
			require.NoError(t, tx.Take(&counter{}, 1).Error) // the snapshot
			require.NoError(t, db.Exec("UPDATE counters SET n = 5 WHERE id = 1").Error)
			swallowed = tx.Exec("UPDATE counters SET n = n + 1 WHERE id = 1").Error
			published = events.NewPublisher(outbox).Publish(ctx, newEvents(1)...)
			return nil
		})
		if !mode.conflict {
			require.NoError(t, errors.Join(err, swallowed, published))
			requireRows(t, db, "outbox", 1)
			continue
		}
		var failed *driver.MySQLError
		require.ErrorAs(t, swallowed, &failed)
		require.EqualValues(t, 1020, failed.Number)
		require.ErrorIs(t, published, persistence.ErrNoTransaction)
		require.Error(t, err)
		requireRows(t, db, "outbox", 0)
		requireRows(t, db, "counters", last)
	}
}
