package sqlstore_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/onward-go/outbox/internal/sqlstore"
	"github.com/onward-go/outbox/internal/stdsql"
	"github.com/onward-go/outbox/persistence"
	"github.com/onward-go/outbox/schema"
)

// tearing hides rows from the next statement that reads the window.
type tearing struct {
	sqlstore.Conn
	hidden []string
	at     map[string]persistence.Cursor
}

func (c *tearing) Query(ctx context.Context, query string, args []any, row func(func(...any) error) error) error {
	if query != sqlstore.SQLite.Text("ReadWindow", schema.Naming{}) {
		return c.Conn.Query(ctx, query, args, row)
	}
	hidden := c.hidden
	c.hidden = nil
	if len(hidden) > 0 { // they do not count
		args = slices.Clone(args)
		args[6] = args[6].(int) + len(hidden)
	}
	return c.Conn.Query(ctx, query, args, func(scan func(...any) error) error {
		var at any
		var id string
		if err := scan(new(any), &at, &id, new(any), new(any), new(any), new(any), new(any)); err != nil {
			return err
		}
		switch {
		case slices.Contains(hidden, id):
			return nil
		case at == nil: // the number of rows
			return row(func(dest ...any) error {
				err := scan(dest...)
				n, atoiErr := strconv.Atoi(id)
				*dest[2].(*string) = strconv.Itoa(n - c.within(hidden, args[0].(int64), args[2].(int64)))
				return errors.Join(err, atoiErr)
			})
		}
		return row(scan)
	})
}

// within returns how many of the rows lie after one time, up to another.
func (c *tearing) within(ids []string, after, upTo int64) (n int) {
	for _, id := range ids {
		if at := c.at[id].CreatedTime.UnixMicro(); at > after && at <= upTo {
			n++
		}
	}
	return n
}

// torn is a store whose read views may be torn, with a row a microsecond: what
// each is called, and whose it is.
func torn(t *testing.T, rows ...[2]string) (*sqlstore.Store, *tearing, func(id string) persistence.Cursor) {
	t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "outbox.db"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	conn := &tearing{Conn: stdsql.Pool{DB: db}}
	store := sqlstore.New(sqlstore.Config{
		Database:       db,
		Dialect:        sqlstore.SQLite,
		MaxPayload:     1000,
		Pool:           conn,
		MaxConnections: stdsql.Pool{DB: db}.MaxConnections,
		Begin: func(ctx context.Context) (persistence.Tx, error) {
			return stdsql.NewTransactions(db, sqlstore.SQLite).Begin(ctx, nil)
		},
	})
	require.NoError(t, store.Migrate(t.Context()))
	store.TearViews()
	at := map[string]persistence.Cursor{}
	conn.at = at
	start := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	for i, row := range rows {
		c := persistence.Cursor{CreatedTime: start.Add(time.Duration(i) * time.Microsecond), ID: row[0]}
		at[row[0]] = c
		_, err := db.ExecContext(t.Context(), `INSERT INTO outbox (id, account_id, aggregate_type, aggregate_id, event_type, payload, created_time)
			VALUES (?, ?, 'a', '1', 't', 'payload', ?)`, c.ID, row[1], c.CreatedTime.UnixMicro())
		require.NoError(t, err)
	}
	return store, conn, func(id string) persistence.Cursor { return at[id] }
}

func TestAWindowReadFromATornViewIsMended(t *testing.T) {
	store, conn, at := torn(t, [2]string{"x1", "x"}, [2]string{"y1", "y"}, [2]string{"x2", "x"}, [2]string{"z1", "z"},
		[2]string{"y2", "y"}, [2]string{"x3", "x"}, [2]string{"z2", "z"}, [2]string{"x4", "x"})
	for name, c := range map[string]struct {
		hidden, known []string
		read          persistence.WindowRead
		want          []string
	}{
		"nothing is missed":         {read: persistence.WindowRead{Limit: 10}, want: []string{"x1", "y1", "x2", "z1", "y2", "x3", "z2", "x4"}},
		"one is missed":             {hidden: []string{"x2"}, read: persistence.WindowRead{Limit: 10}, want: []string{"x1", "y1", "x2", "z1", "y2", "x3", "z2", "x4"}},
		"all before one are missed": {hidden: []string{"x1", "x2", "x3"}, read: persistence.WindowRead{Limit: 10}, want: []string{"x1", "y1", "x2", "z1", "y2", "x3", "z2", "x4"}},
		"nothing follows":           {hidden: []string{"y2", "z1", "z2", "x1"}, read: persistence.WindowRead{Limit: 10}, want: []string{"x1", "y1", "x2", "x3", "x4"}},
		"what lies after the last":  {hidden: []string{"x1", "y2", "z2", "x4"}, read: persistence.WindowRead{Limit: 10}, want: []string{"x1", "y1", "x2", "z1", "x3"}},
		"all is missed":             {hidden: []string{"x1", "y1", "x2", "z1", "y2", "x3", "z2", "x4"}, read: persistence.WindowRead{Limit: 10}},
		"late ones": {
			hidden: []string{"x1", "y1", "z1"}, known: []string{"y2", "x2"},
			read: persistence.WindowRead{Frontier: at("y2"), Limit: 10}, want: []string{"x1", "z1", "x3", "z2", "x4"},
		},
		"before a late one": {
			hidden: []string{"x1", "x2"}, known: []string{"y1", "z1", "y2"},
			read: persistence.WindowRead{Frontier: at("x3"), Limit: 1}, want: []string{"x1", "x2", "x3", "z2"},
		},
		"late ones among those that are counted": {
			hidden: []string{"x1", "y1", "z1"}, known: []string{"y2", "x2"},
			read: persistence.WindowRead{Counted: at("z1"), Count: 1, Frontier: at("y2"), Limit: 10}, want: []string{"x1", "z1", "x3", "z2", "x4"},
		},
		"one of those that are counted": {
			hidden: []string{"x1"}, known: []string{"y1", "x2", "z1", "y2"},
			read: persistence.WindowRead{Counted: at("z1"), Count: 3, Frontier: at("y2"), Limit: 10}, want: []string{"x1", "x3", "z2", "x4"},
		},
		"one that is counted is seen at once, and another missed": {
			hidden: []string{"y1"}, known: []string{"x2", "z1", "y2"},
			read: persistence.WindowRead{Counted: at("z1"), Count: 2, Frontier: at("y2"), Limit: 10}, want: []string{"x1", "y1", "x3", "z2", "x4"},
		},
		"behind the cursor": {
			hidden: []string{"x1", "x2"}, read: persistence.WindowRead{After: at("x1"), Frontier: at("x1"), Limit: 10},
			want: []string{"y1", "x2", "z1", "y2", "x3", "z2", "x4"},
		},
		"with a limit": {hidden: []string{"x1"}, read: persistence.WindowRead{Limit: 3}, want: []string{"x1", "y1", "x2"}},
		"with a bound of bytes": {
			hidden: []string{"x1"}, read: persistence.WindowRead{Limit: 10, MaxBytes: 14}, want: []string{"x1", "y1", "x2"},
		},
	} {
		read := c.read
		read.Known = func(c2 persistence.Cursor) bool {
			require.LessOrEqual(t, c2.Compare(read.Edge()), 0, "it is not asked for what it cannot know")
			return slices.Contains(c.known, c2.ID)
		}
		read.KnownCount, read.LateLimit = len(c.known), 10
		conn.hidden = c.hidden
		page, err := store.ReadWindow(t.Context(), read)
		require.NoError(t, err)
		var got []string
		for _, r := range page.Records {
			got = append(got, r.ID)
			require.Equal(t, "payload", string(r.Payload))
		}
		require.Equal(t, c.want, got, name)
	}
}
