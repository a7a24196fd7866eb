package matrix

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/gormtx"
	"github.com/onward-go/outbox/persistence"
)

// plugged is what a plugin puts around a transaction of GORM's. It is no gorm.Tx, and
// does not tell the pool.
type plugged struct {
	tx   *sql.Tx
	seen *[]string
}

func (p *plugged) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	*p.seen = append(*p.seen, query)
	return p.tx.ExecContext(ctx, query, args...)
}

func (p *plugged) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	return p.tx.QueryContext(ctx, query, args...)
}

func (p *plugged) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	return p.tx.QueryRowContext(ctx, query, args...)
}

func (p *plugged) PrepareContext(ctx context.Context, query string) (*sql.Stmt, error) {
	return p.tx.PrepareContext(ctx, query)
}

func (p *plugged) Commit() error   { return p.tx.Commit() }
func (p *plugged) Rollback() error { return p.tx.Rollback() }

// hiding has what a connection of a transaction needs, but for its end.
type hiding struct{ gorm.ConnPool }

// Savepoints, of GORM and of Atomically, and whatever else a server does not prepare, go
// past GORM's cache of prepared statements: in Atomically and WithTx, if the database was
// opened with PrepareStmt, and in a session with it.
func TestGORMThatPreparesNestsOnEachServer(t *testing.T) {
	t.Parallel()
	for _, server := range Servers {
		for name, prepared := range map[string]bool{"by config": true, "by session": false} {
			t.Run(server.Name+"/"+name, func(t *testing.T) {
				t.Parallel()
				db := Open(t, server.Gorm(t), &gorm.Config{Logger: logger.Discard, PrepareStmt: prepared})
				outbox := gormtx.New(db)
				require.NoError(t, outbox.Migrate(t.Context()))
				require.NoError(t, db.AutoMigrate(&note{}))
				publisher := events.NewPublisher(outbox)
				session := func(tx *gorm.DB) *gorm.DB { return tx.Session(&gorm.Session{PrepareStmt: true}) }
				nest := func(ctx context.Context, id string) error {
					tx := session(gormtx.Tx(ctx))
					if err := tx.Create(&note{id + "1"}).Error; err != nil {
						return err
					}
					err := tx.Transaction(func(tx *gorm.DB) error {
						return errors.Join(tx.Create(&note{id + "gone"}).Error, errOnce)
					})
					if !errors.Is(err, errOnce) {
						return err
					}
					for _, end := range []error{nil, errOnce} {
						err := outbox.Atomically(ctx, func(ctx context.Context) error {
							return errors.Join(publisher.Publish(ctx, newEvents(1)...), gormtx.Tx(ctx).Create(&note{id + "2" + errorText(end)}).Error, end)
						})
						if !errors.Is(err, end) {
							return err
						}
					}
					if err := gormtx.Tx(ctx).SavePoint("by_hand").Error; err != nil {
						return err
					}
					return errors.Join(gormtx.Tx(ctx).Create(&note{id + "gone too"}).Error, gormtx.Tx(ctx).RollbackTo("by_hand").Error,
						gormtx.Tx(ctx).Exec("SAVEPOINT again").Error, gormtx.Tx(ctx).Exec("RELEASE SAVEPOINT again").Error)
				}
				require.NoError(t, outbox.Atomically(t.Context(), func(ctx context.Context) error { return nest(ctx, "a") }))
				require.NoError(t, db.Transaction(func(tx *gorm.DB) error {
					ctx, err := gormtx.WithTx(t.Context(), tx)
					if err != nil {
						return err
					}
					return nest(ctx, "b")
				}))
				require.NoError(t, session(db).Transaction(func(tx *gorm.DB) error {
					ctx, err := gormtx.WithTx(t.Context(), tx)
					if err != nil {
						return err
					}
					return nest(ctx, "c")
				}))
				var ids []string
				require.NoError(t, db.Model(&note{}).Order("id").Pluck("id", &ids).Error)
				require.Equal(t, []string{"a1", "a2", "b1", "b2", "c1", "c2"}, ids)
				requireRows(t, db, "outbox", 3)
			})
		}
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// What a plugin puts around a transaction is one if it has Commit and Rollback. What has
// not is named.
func TestWithTxUnderAPluginOfGORM(t *testing.T) {
	t.Parallel()
	for _, server := range Servers {
		t.Run(server.Name, func(t *testing.T) {
			t.Parallel()
			db := Open(t, server.Gorm(t), &gorm.Config{Logger: logger.Discard})
			outbox := gormtx.New(db)
			require.NoError(t, outbox.Migrate(t.Context()))
			require.NoError(t, db.AutoMigrate(&note{}))
			var seen []string
			for _, end := range []error{nil, errOnce} {
				err := db.Transaction(func(tx *gorm.DB) error {
					opened := tx.Statement.ConnPool.(*sql.Tx)
					tx = tx.Session(&gorm.Session{Context: t.Context()}) // a statement of its own
					tx.Statement.ConnPool = &plugged{opened, &seen}
					ctx, err := gormtx.WithTx(t.Context(), tx)
					if err != nil {
						return err
					}
					return errors.Join(events.NewPublisher(outbox).Publish(ctx, newEvents(1)...), gormtx.Tx(ctx).Create(&note{events.NewID()[:20]}).Error,
						outbox.Atomically(ctx, func(ctx context.Context) error { return gormtx.Tx(ctx).Exec("DELETE FROM notes WHERE 1 = 0").Error }), end)
				})
				require.ErrorIs(t, err, end)
			}
			requireRows(t, db, "outbox", 1)
			requireRows(t, db, "notes", 1)
			require.NotEmpty(t, seen, "the plugin sees the statements")

			require.NoError(t, db.Transaction(func(tx *gorm.DB) error {
				tx = tx.Session(&gorm.Session{Context: t.Context()}) // a statement of its own
				tx.Statement.ConnPool = hiding{tx.Statement.ConnPool}
				_, err := gormtx.WithTx(t.Context(), tx)
				require.ErrorIs(t, err, persistence.ErrInvalid)
				require.ErrorContains(t, err, "matrix.hiding")
				return nil
			}))
			lone := *db.Config
			lone.ConnPool = hiding{db.ConnPool}
			_, err := gormtx.New(&gorm.DB{Config: &lone}).ReadAfter(t.Context(), persistence.Cursor{}, 1)
			require.ErrorIs(t, err, persistence.ErrInvalid)
			require.ErrorContains(t, err, "matrix.hiding")
		})
	}
}
