package gormtx_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/gormtx"
	"github.com/onward-go/outbox/persistence"
)

var errRollback = errors.New("roll back")

func migrated(t testing.TB, opts ...gormtx.Option) (*gorm.DB, *gormtx.Outbox) {
	t.Helper()
	db := openPure(t)
	outbox := gormtx.New(db, opts...)
	require.NoError(t, outbox.Migrate(t.Context()))
	require.NoError(t, db.Exec("CREATE TABLE users (id TEXT PRIMARY KEY, status TEXT NOT NULL)").Error)
	return db, outbox
}

func event(id string) events.Event {
	return events.Event{ID: id, Type: "t", AggregateType: "User", AggregateID: "1"}
}

func published(t testing.TB, db *gorm.DB) []string {
	t.Helper()
	ids := []string{}
	require.NoError(t, db.Raw("SELECT id FROM outbox ORDER BY created_time, id").Scan(&ids).Error)
	return ids
}

type user struct{ ID, Status string }

func TestTxIsTheTransactionOfTheContext(t *testing.T) {
	db, outbox := migrated(t)
	ctx := t.Context()
	require.ErrorIs(t, outbox.Atomically(ctx, func(ctx context.Context) error {
		require.NoError(t, gormtx.Tx(ctx).Create(&user{"1", "active"}).Error)
		require.NoError(t, gormtx.DB(ctx, db).Create(&user{"2", "active"}).Error)
		var n int64
		require.NoError(t, gormtx.Tx(ctx).Model(&user{}).Count(&n).Error)
		require.EqualValues(t, 2, n)
		return errRollback
	}), errRollback)
	var n int64
	require.NoError(t, gormtx.DB(ctx, db).Model(&user{}).Count(&n).Error)
	require.Zero(t, n)
}

// What GORM does in other ways than by a plain statement is in the transaction, too, or
// refused.
func TestNothingLeadsOutOfTheTransaction(t *testing.T) {
	plain := func(tx *gorm.DB) error { return tx.Create(&user{"1", "active"}).Error }
	session := func(s gorm.Session) func(*gorm.DB) error {
		return func(tx *gorm.DB) error { return plain(tx.Session(&s)) }
	}
	for name, way := range map[string]struct {
		write   func(tx *gorm.DB) error
		refused bool
	}{
		"Connection": {func(tx *gorm.DB) error { return tx.Connection(plain) }, true},
		"DB": {func(tx *gorm.DB) error {
			pool, err := tx.DB()
			require.Nil(t, pool)
			return err
		}, true},
		"Connection of a nested transaction": {func(tx *gorm.DB) error {
			return tx.Transaction(func(tx *gorm.DB) error { return tx.Connection(plain) })
		}, true},
		"NewDB":                    {session(gorm.Session{NewDB: true}), false},
		"SkipDefaultTransaction":   {session(gorm.Session{SkipDefaultTransaction: true}), false},
		"PrepareStmt":              {session(gorm.Session{PrepareStmt: true}), false},
		"DisableNestedTransaction": {session(gorm.Session{DisableNestedTransaction: true}), false},
		"DryRun":                   {session(gorm.Session{DryRun: true}), false},
		"Transaction":              {func(tx *gorm.DB) error { return tx.Transaction(plain) }, false},
		"Raw": {func(tx *gorm.DB) error {
			var id string
			return tx.Raw("INSERT INTO users (id, status) VALUES ('1', 'active') RETURNING id").Scan(&id).Error
		}, false},
		"FindInBatches": {func(tx *gorm.DB) error {
			if err := plain(tx); err != nil {
				return err
			}
			var found []user
			return tx.FindInBatches(&found, 1, func(tx *gorm.DB, _ int) error {
				return tx.Session(&gorm.Session{NewDB: true}).Model(&user{}).Where("id = ?", "1").Update("status", "found").Error
			}).Error
		}, false},
		"Migrator": {func(tx *gorm.DB) error {
			if err := tx.Migrator().AddColumn(&struct {
				user
				Name string
			}{}, "Name"); err == nil {
				return errors.New("there is no such table")
			}
			return plain(tx)
		}, false},
		"Begin": {func(tx *gorm.DB) error {
			if begun := tx.Begin(); begun.Error == nil {
				return plain(begun)
			}
			return plain(tx)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			db, outbox := migrated(t)
			err := outbox.Atomically(t.Context(), func(ctx context.Context) error {
				err := way.write(gormtx.Tx(ctx))
				if way.refused {
					require.ErrorIs(t, err, persistence.ErrInTransaction)
					require.ErrorContains(t, err, "lead out of it")
				} else {
					require.NoError(t, err)
				}
				return errRollback
			})
			require.ErrorIs(t, err, errRollback)
			var n int64
			require.NoError(t, db.Model(&user{}).Count(&n).Error)
			require.Zero(t, n)
		})
	}
}

// The stores find their pool under a transaction, too.
func TestStoresOfATransactionsSessionAreThoseOfItsPool(t *testing.T) {
	db, outbox := migrated(t)
	require.NoError(t, outbox.Atomically(t.Context(), func(ctx context.Context) error {
		for _, tx := range []*gorm.DB{gormtx.Tx(ctx), gormtx.Tx(ctx).Session(&gorm.Session{PrepareStmt: true}), gormtx.DB(ctx, gormtx.Tx(ctx))} {
			require.NoError(t, events.NewPublisher(gormtx.New(tx)).Publish(ctx, events.Event{Type: "t", AggregateType: "User", AggregateID: "1"}))
		}
		return nil
	}))
	require.Len(t, published(t, db), 3)
}

func TestTxOutsideATransactionFailsClosed(t *testing.T) {
	_, outbox := migrated(t)
	var leaked context.Context
	require.NoError(t, outbox.Atomically(t.Context(), func(ctx context.Context) error { leaked = ctx; return nil }))
	for _, ctx := range []context.Context{t.Context(), leaked} {
		require.ErrorIs(t, gormtx.Tx(ctx).Create(&user{"1", "active"}).Error, persistence.ErrNoTransaction)
		require.ErrorIs(t, gormtx.Tx(ctx).Exec("DELETE FROM users").Error, persistence.ErrNoTransaction)
		require.ErrorIs(t, gormtx.Tx(ctx).Model(&user{}).Where("id = ?", "1").Update("status", "x").Error, persistence.ErrNoTransaction)
		require.ErrorIs(t, gormtx.Tx(ctx).Take(&user{}).Error, persistence.ErrNoTransaction)
		require.ErrorIs(t, gormtx.Tx(ctx).Connection(func(*gorm.DB) error { return nil }), persistence.ErrNoTransaction)
		require.ErrorIs(t, gormtx.Tx(ctx).Transaction(func(*gorm.DB) error { return nil }), persistence.ErrNoTransaction)
	}
}

func TestTxCannotBeEndedByHand(t *testing.T) {
	db, outbox := migrated(t)
	require.NoError(t, outbox.Atomically(t.Context(), func(ctx context.Context) error {
		require.ErrorIs(t, gormtx.Tx(ctx).Commit().Error, persistence.ErrInTransaction)
		require.ErrorIs(t, gormtx.Tx(ctx).Rollback().Error, persistence.ErrInTransaction)
		return outbox.Append(ctx, persistence.Record{ID: "a", AggregateType: "a", AggregateID: "1", EventType: "t"})
	}))
	require.Equal(t, []string{"a"}, published(t, db))
}

func TestTransactionsOfGORMNestInAtomically(t *testing.T) {
	db, outbox := migrated(t)
	require.NoError(t, outbox.Atomically(t.Context(), func(ctx context.Context) error {
		require.ErrorIs(t, gormtx.Tx(ctx).Transaction(func(tx *gorm.DB) error {
			require.NoError(t, tx.Create(&user{"1", "active"}).Error)
			return errRollback
		}), errRollback)
		return gormtx.Tx(ctx).Transaction(func(tx *gorm.DB) error { return tx.Create(&user{"2", "active"}).Error })
	}))
	var users []user
	require.NoError(t, db.Find(&users).Error)
	require.Equal(t, []user{{"2", "active"}}, users)
}

func TestWithTxEnlistsInATransactionOfGORM(t *testing.T) {
	db, outbox := migrated(t)
	publisher := events.NewPublisher(outbox)
	var leaked context.Context
	work := func(tx *gorm.DB, id string) {
		ctx, err := gormtx.WithTx(t.Context(), tx)
		require.NoError(t, err)
		leaked = ctx
		require.NoError(t, tx.Create(&user{id, "suspended"}).Error)
		require.NoError(t, publisher.Publish(ctx, event(id)))
		require.NoError(t, gormtx.Tx(ctx).Model(&user{}).Where("id = ?", id).Update("status", "seen").Error)
		require.ErrorIs(t, outbox.Atomically(ctx, func(ctx context.Context) error {
			require.NoError(t, publisher.Publish(ctx, event(id+"-savepoint")))
			require.ErrorIs(t, persistence.AfterCommit(ctx, func(context.Context) {}), persistence.ErrCommitNotObserved)
			return errRollback
		}), errRollback)
		require.ErrorIs(t, persistence.AfterCommit(ctx, func(context.Context) {}), persistence.ErrCommitNotObserved)
	}
	require.NoError(t, db.Transaction(func(tx *gorm.DB) error { work(tx, "committed"); return nil }))
	require.ErrorIs(t, publisher.Publish(leaked, event("late")), persistence.ErrNoTransaction)
	require.ErrorIs(t, db.Transaction(func(tx *gorm.DB) error { work(tx, "rolled-back"); return errRollback }), errRollback)
	require.ErrorIs(t, publisher.Publish(leaked, event("late")), persistence.ErrNoTransaction)
	require.Error(t, outbox.Atomically(leaked, func(context.Context) error { t.Error("ran in an ended transaction"); return nil }))

	tx := db.Session(&gorm.Session{PrepareStmt: true}).Begin()
	work(tx, "prepared")
	require.NoError(t, tx.Commit().Error)
	require.Equal(t, []string{"committed", "prepared"}, published(t, db))
}

func TestWithTxSeesThatSQLiteEndedTheTransaction(t *testing.T) {
	db, outbox := migrated(t)
	tx := db.Begin()
	ctx, err := gormtx.WithTx(t.Context(), tx)
	require.NoError(t, err)
	require.Error(t, tx.Exec("INSERT OR ROLLBACK INTO users VALUES (NULL, NULL)").Error)
	require.ErrorIs(t, events.NewPublisher(outbox).Publish(ctx, event("a")), persistence.ErrNoTransaction)
	tx.Rollback()
	require.Empty(t, published(t, db))
}

func TestWithTxNeedsATransaction(t *testing.T) {
	db, _ := migrated(t)
	for name, bad := range map[string]*gorm.DB{"a pool": db, "nil": nil, "failed": {Error: errRollback, Config: db.Config}} {
		_, err := gormtx.WithTx(t.Context(), bad)
		require.Error(t, err, name)
	}
	_, err := gormtx.WithTx(t.Context(), db)
	require.ErrorIs(t, err, persistence.ErrInvalid)
}

// SQLite ends the transaction in the middle of a result that somebody else
// reads.
func TestTransactionThatEndsWhileAResultIsRead(t *testing.T) {
	for name, driver := range drivers {
		t.Run(name, func(t *testing.T) {
			db := open(t, driver(t.TempDir()+"/outbox.db"))
			outbox := gormtx.New(db)
			require.NoError(t, outbox.Migrate(t.Context()))
			require.NoError(t, db.Exec("CREATE TABLE users (id TEXT PRIMARY KEY NOT NULL)").Error)
			require.Error(t, outbox.Atomically(t.Context(), func(ctx context.Context) error {
				var ids []string
				_ = gormtx.Tx(ctx).Raw("INSERT OR ROLLBACK INTO users VALUES ('a'), ('b'), (NULL) RETURNING id").Scan(&ids).Error
				require.ErrorIs(t, events.NewPublisher(outbox).Publish(ctx, event("a")), persistence.ErrNoTransaction)
				require.Error(t, gormtx.Tx(ctx).Exec("INSERT INTO users VALUES ('committed by itself')").Error)
				return nil
			}))
			require.Empty(t, published(t, db))
			var n int64
			require.NoError(t, db.Table("users").Count(&n).Error)
			require.Zero(t, n)
		})
	}
}

// Sessions made of the transaction stay in it, also those that prepare.
func TestSessionsOfTheTransactionStayInIt(t *testing.T) {
	for name, driver := range drivers {
		for what, session := range map[string]*gorm.Session{
			"prepared": {PrepareStmt: true}, "new": {NewDB: true}, "prepared, new": {PrepareStmt: true, NewDB: true},
		} {
			t.Run(name+"/"+what, func(t *testing.T) {
				db := open(t, driver(t.TempDir()+"/outbox.db"))
				outbox := gormtx.New(db)
				require.NoError(t, outbox.Migrate(t.Context()))
				require.NoError(t, db.Exec("CREATE TABLE users (id TEXT PRIMARY KEY, status TEXT)").Error)
				for range 2 { // the second time from the cache of statements
					require.ErrorIs(t, outbox.Atomically(t.Context(), func(ctx context.Context) error {
						require.NoError(t, gormtx.Tx(ctx).Session(session).Create(&user{"1", "active"}).Error)
						return errRollback
					}), errRollback)
				}
				var n int64
				require.NoError(t, db.Table("users").Count(&n).Error)
				require.Zero(t, n)
			})
		}
	}
}

func TestAResultThatIsLeftOpenDoesNotBlockTheEnd(t *testing.T) {
	for name, driver := range drivers {
		t.Run(name, func(t *testing.T) {
			db := open(t, driver(t.TempDir()+"/outbox.db"))
			outbox := gormtx.New(db)
			require.NoError(t, outbox.Migrate(t.Context()))
			leave := func(ctx context.Context) {
				rows, err := gormtx.Tx(ctx).Raw("SELECT 1 UNION SELECT 2").Rows()
				require.NoError(t, err)
				require.True(t, rows.Next())
				_ = gormtx.Tx(ctx).Raw("SELECT 1").Row() // not scanned
			}
			require.NoError(t, outbox.Atomically(t.Context(), func(ctx context.Context) error { leave(ctx); return nil }))
			require.Panics(t, func() {
				_ = outbox.Atomically(t.Context(), func(ctx context.Context) error { leave(ctx); panic("boom") })
			})
			require.NoError(t, outbox.Atomically(t.Context(), func(ctx context.Context) error {
				return events.NewPublisher(outbox).Publish(ctx, event("a"))
			}))
		})
	}
}

func TestStatementsThatEndTheTransactionAreRefused(t *testing.T) {
	db, outbox := migrated(t)
	require.NoError(t, outbox.Atomically(t.Context(), func(ctx context.Context) error {
		for _, statement := range []string{"COMMIT", " rollback ", "ROLLBACK TRANSACTION", "end;", "BEGIN IMMEDIATE", "START TRANSACTION", "commit -- x"} {
			require.ErrorIs(t, gormtx.Tx(ctx).Exec(statement).Error, persistence.ErrInTransaction, statement)
			require.ErrorIs(t, gormtx.Tx(ctx).Raw(statement).Row().Err(), persistence.ErrInTransaction, statement)
		}
		return events.NewPublisher(outbox).Publish(ctx, event("a"))
	}))
	require.Equal(t, []string{"a"}, published(t, db))
}

func TestAPreparedStatementThatEndsTheTransactionIsNoticed(t *testing.T) {
	db, outbox := migrated(t)
	require.Error(t, outbox.Atomically(t.Context(), func(ctx context.Context) error {
		stmt, err := gormtx.Tx(ctx).Statement.ConnPool.PrepareContext(ctx, "INSERT OR ROLLBACK INTO users VALUES (?, 'active')")
		require.NoError(t, err)
		_, err = stmt.Exec("1")
		require.NoError(t, err)
		require.NoError(t, events.NewPublisher(outbox).Publish(ctx, event("a")))
		_, err = stmt.Exec("1")
		require.Error(t, err)
		require.ErrorIs(t, events.NewPublisher(outbox).Publish(ctx, event("b")), persistence.ErrNoTransaction)
		return nil
	}))
	require.Empty(t, published(t, db))
}

func TestASavepointThatCannotBeTakenBackDoomsTheTransaction(t *testing.T) {
	db, outbox := migrated(t)
	require.Error(t, outbox.Atomically(t.Context(), func(ctx context.Context) error {
		require.ErrorIs(t, outbox.Atomically(ctx, func(ctx context.Context) error {
			require.NoError(t, events.NewPublisher(outbox).Publish(ctx, event("a")))
			require.NoError(t, gormtx.Tx(ctx).Exec("RELEASE outbox_1").Error)
			return errRollback
		}), errRollback)
		require.ErrorIs(t, events.NewPublisher(outbox).Publish(ctx, event("b")), persistence.ErrNoTransaction)
		return nil // the inner error is swallowed
	}))
	require.Empty(t, published(t, db))
}
