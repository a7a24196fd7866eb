package matrix

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/internal/sqlstore"
	"github.com/onward-go/outbox/internal/stdsql"
	"github.com/onward-go/outbox/persistence"
)

// rewriting is a pool whose server answers some questions otherwise.
type rewriting struct {
	stdsql.Pool
	rewrite func(string) string
}

func (r rewriting) Query(ctx context.Context, query string, args []any, row func(func(...any) error) error) error {
	return r.Pool.Query(ctx, r.rewrite(query), args, row)
}

func TestPostgresReadsOnlyFromThePrimary(t *testing.T) {
	db, outbox := newPostgres(t)
	publish(t, outbox, "a")
	rows, err := outbox.ReadAfter(t.Context(), persistence.Cursor{}, 1)
	require.NoError(t, err)
	require.Len(t, rows, 1)
	pool, err := db.DB()
	require.NoError(t, err)
	const reads = `FROM "outbox"` // the statements that read rows, not the mark
	for name, c := range map[string]struct {
		rewrite  func(string) string
		fails    bool
		strictly bool // only the read that has a mark
	}{
		"a primary": {rewrite: func(q string) string { return q }},
		"a standby": {fails: true, rewrite: func(q string) string { return strings.ReplaceAll(q, "pg_is_in_recovery()", "true") }},
		"a standby behind a proxy that splits reads": {fails: true, rewrite: func(q string) string {
			if strings.Contains(q, reads) {
				return strings.ReplaceAll(q, "pg_is_in_recovery()", "true")
			}
			return q
		}},
		"another primary behind a proxy": {fails: true, strictly: true, rewrite: func(q string) string {
			if strings.Contains(q, reads) {
				return strings.ReplaceAll(q, "pg_postmaster_start_time()", "(pg_postmaster_start_time() - interval '1 day')")
			}
			return q
		}},
	} {
		t.Run(name, func(t *testing.T) {
			store := sqlstore.New(sqlstore.Config{
				Database: pool, Dialect: sqlstore.Postgres, MaxPayload: 1,
				Pool: rewriting{stdsql.Pool{DB: pool}, c.rewrite}, MaxConnections: func() int { return 0 },
			})
			if name == "a standby" {
				_, err := store.ReadStatus(t.Context())
				require.ErrorIs(t, err, persistence.ErrNotPrimary)
			}
			for _, after := range []persistence.Cursor{{}, rows[0].Cursor()} { // with and without rows
				_, err := store.ReadAfter(t.Context(), after, 10)
				check := require.NoError
				if c.fails {
					check = func(t require.TestingT, err error, _ ...any) { require.ErrorIs(t, err, persistence.ErrNotPrimary) }
				}
				check(t, err)
				if !c.strictly {
					_, err = store.ReadWindow(t.Context(), persistence.WindowRead{After: after, Frontier: after, Limit: 10})
					check(t, err)
				}
			}
		})
	}
}
