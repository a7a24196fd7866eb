package matrix

import (
	"context"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/onward-go/outbox/internal/sqlstore"
	"github.com/onward-go/outbox/internal/stdsql"
	"github.com/onward-go/outbox/persistence"
	"github.com/onward-go/outbox/schema"
)

// tearing hides a row from the next statement that reads the window.
type tearing struct {
	sqlstore.Conn
	statement string
	hidden    string
}

var placeholder = regexp.MustCompile(`[?$][0-9]+`)

func (c *tearing) Query(ctx context.Context, query string, args []any, row func(func(...any) error) error) error {
	if placeholder.ReplaceAllString(query, "?") != placeholder.ReplaceAllString(c.statement, "?") {
		return c.Conn.Query(ctx, query, args, row)
	}
	hidden := c.hidden
	c.hidden = ""
	return c.Conn.Query(ctx, query, args, func(scan func(...any) error) error {
		var id string
		if err := scan(new(any), new(any), &id, new(any), new(any), new(any), new(any), new(any)); err != nil {
			return err
		}
		if id == hidden && id != "" {
			return nil
		}
		return row(scan)
	})
}

// MariaDB alone is asked twice, since its read views may be torn.
func TestMariaDBWindowFromATornViewIsMended(t *testing.T) {
	for _, s := range Servers {
		if s.Kind == nil || s.Again {
			continue
		}
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			gormDB := Open(t, s.Gorm(t), &gorm.Config{Logger: logger.Discard})
			db, err := gormDB.DB()
			require.NoError(t, err)
			dialect := map[string]*sqlstore.Dialect{"postgres": sqlstore.Postgres, "mysql": sqlstore.MySQL}[gormDB.Name()]
			conn := &tearing{Conn: stdsql.Pool{DB: db}, statement: dialect.Text("ReadWindow", schema.Naming{})}
			store := sqlstore.New(sqlstore.Config{
				Database:       db,
				Dialect:        dialect,
				MaxPayload:     1000,
				Pool:           conn,
				MaxConnections: stdsql.Pool{DB: db}.MaxConnections,
				Begin: func(ctx context.Context) (persistence.Tx, error) {
					return stdsql.NewTransactions(db, dialect).Begin(ctx, nil)
				},
			})
			require.NoError(t, store.Migrate(t.Context()))
			for _, id := range []string{"a", "b"} {
				require.NoError(t, store.Atomically(t.Context(), func(ctx context.Context) error {
					return store.Append(ctx, persistence.Record{ID: id, EventType: "t", AggregateType: "a", AggregateID: "1"})
				}))
			}
			for _, c := range []struct {
				hidden string
				want   []string
			}{{"", []string{"a", "b"}}, {"a", []string{"a", "b"}}, {"b", []string{"a"}}} {
				if c.hidden == "a" && s.Name != "mariadb" {
					c.want = []string{"b"}
				}
				conn.hidden = c.hidden
				page, err := store.ReadWindow(t.Context(), persistence.WindowRead{Limit: 10})
				require.NoError(t, err)
				var got []string
				for _, r := range page.Records {
					got = append(got, r.ID)
				}
				require.Equal(t, c.want, got)
			}
		})
	}
}
