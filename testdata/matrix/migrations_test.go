package matrix

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/onward-go/outbox/internal/face"
	"github.com/onward-go/outbox/internal/sqlstore"
	"github.com/onward-go/outbox/internal/stdsql"
	"github.com/onward-go/outbox/persistence"
	"github.com/onward-go/outbox/schema"
)

// release opens the store of a release that has these migrations, as a process that
// has just been started.
func release(db *sql.DB, dialect string, breaking bool, migrations ...schema.Migration) *sqlstore.Store {
	d := face.Dialect(dialect)
	open := stdsql.NewTransactions(db, d)
	begin := func(ctx context.Context) (persistence.Tx, error) { return open.Begin(ctx, nil) }
	return stdsql.NewStore(sqlstore.Config{
		Dialect: d, MaxPayload: persistence.DefaultMaxPayload, Migrations: migrations, BreakingMigrations: breaking,
	}, db, begin, begin)
}

// A release works beside one that has more compatible migrations, before and after
// these are applied. What it cannot work with is refused until somebody says that it is
// meant.
func TestMigrationsUnderRunningReplicas(t *testing.T) {
	for _, server := range Servers {
		t.Run(server.Name, func(t *testing.T) {
			db := Open(t, server.Gorm(t), &gorm.Config{Logger: logger.Discard})
			pool, err := db.DB()
			require.NoError(t, err)
			known, err := schema.Render(db.Name(), schema.Naming{})
			require.NoError(t, err)
			n := len(known)
			compatible := schema.Migration{Version: n + 1, Name: "note", Statements: []string{
				"CREATE TABLE outbox_note (n INTEGER)", recordedBy(-(n + 1))}}
			breaking := schema.Migration{Version: n + 2, Name: "rename", Breaks: "their publishes fail", Statements: []string{
				"CREATE TABLE outbox_renamed (n INTEGER)", recordedBy(n + 2)}}
			later := append(known[:n:n], compatible)
			latest := append(later[:n+1:n+1], breaking)
			works := func(s *sqlstore.Store) error {
				_, err := s.SafeMark(t.Context())
				return err
			}
			former := func() *sqlstore.Store { return release(pool, db.Name(), false, known...) }
			require.NoError(t, former().Migrate(t.Context()))
			running := former()
			require.NoError(t, works(running))

			t.Log("the later release wants its compatible migration")
			err = works(release(pool, db.Name(), false, later...))
			require.ErrorIs(t, err, persistence.ErrSchema)
			require.ErrorContains(t, err, compatible.String())
			pending, err := release(pool, db.Name(), false, later...).PendingMigrations(t.Context())
			require.NoError(t, err)
			require.Equal(t, []schema.Migration{compatible}, pending)

			t.Log("replicas of it migrate at once")
			var replicas sync.WaitGroup
			errs := make([]error, 4)
			for i := range errs {
				replicas.Go(func() { errs[i] = release(pool, db.Name(), false, later...).Migrate(t.Context()) })
			}
			replicas.Wait()
			require.NoError(t, errors.Join(errs...))
			require.NoError(t, works(release(pool, db.Name(), false, later...)))

			t.Log("the former release goes on, is restarted, and finds nothing to migrate")
			for _, s := range []*sqlstore.Store{running, former()} {
				require.NoError(t, works(s))
				require.NoError(t, s.Migrate(t.Context()))
			}
			version, err := former().SchemaVersion(t.Context())
			require.NoError(t, err)
			require.Equal(t, schema.Version, version)

			t.Log("a breaking migration is refused until it is told")
			err = release(pool, db.Name(), false, latest...).Migrate(t.Context())
			require.ErrorIs(t, err, persistence.ErrSchema)
			require.ErrorContains(t, err, breaking.Breaks)
			require.NoError(t, works(former()), "nothing was done")
			require.NoError(t, release(pool, db.Name(), true, latest...).Migrate(t.Context()))
			require.NoError(t, works(release(pool, db.Name(), false, latest...)))
			require.ErrorContains(t, works(former()), "upgrade the library")

			t.Log("new tables are made by all of them, and break nobody")
			empty := Open(t, server.Gorm(t), &gorm.Config{Logger: logger.Discard})
			pool, err = empty.DB()
			require.NoError(t, err)
			require.NoError(t, release(pool, db.Name(), false, latest...).Migrate(t.Context()))
			require.NoError(t, works(release(pool, db.Name(), false, latest...)))
		})
	}
}

func recordedBy(n int) string {
	return fmt.Sprintf("INSERT INTO outbox_schema (version) VALUES (%d)", n)
}
