package matrix

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/onward-go/outbox/testdata/servers"
)

// databases hands the same few databases to one rule after the other, since
// making one takes longer than most rules do. What a rule gets is as new: a
// database is used again if nobody is left in it, its tables and partitions are
// what they were, and so are its rows when what came since has been deleted.
// All are dropped when the test ends that they are for.
type databases struct {
	t        testing.TB
	server   Server
	variant  variant
	patience time.Duration // how long a database may take to be emptied

	mu   sync.Mutex
	free []*database
}

type database struct {
	dsn string
	// What it was like when it was new.
	relations []relation
	rows      map[string][][]any // of each table
}

// relation is a table, or one of its partitions.
type relation struct{ Table, Partition, Bound string }

// catalogs say how to ask a database for its relations, and how many other
// sessions are busy in it. MySQL does not tell whether one that sleeps has a
// transaction open; PostgreSQL does, and a pooler leaves idle ones there.
var catalogs = map[string]struct{ relations, sessions string }{
	"sqlite": {`SELECT name AS "table" FROM sqlite_schema WHERE type = 'table' ORDER BY name`, "SELECT 0"},
	"mysql": {`
SELECT table_name AS "table", partition_name AS "partition", partition_description AS bound
FROM information_schema.partitions WHERE table_schema = DATABASE() ORDER BY table_name, partition_ordinal_position`,
		"SELECT COUNT(*) FROM /*!80022 performance_schema.processlist */ /*M! information_schema.processlist */ WHERE db = DATABASE() AND id <> CONNECTION_ID()"},
	"postgres": {`
SELECT coalesce(i.inhparent, c.oid)::regclass AS "table", i.inhrelid::regclass AS partition, pg_get_expr(c.relpartbound, c.oid) AS bound
FROM pg_class AS c LEFT JOIN pg_inherits AS i ON i.inhrelid = c.oid
WHERE c.relkind IN ('r', 'p') AND c.relnamespace::regnamespace::text !~ '^(pg_|information_schema)' ORDER BY c.oid`, `
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend' AND state IS DISTINCT FROM 'idle'`},
}

func newDatabases(t testing.TB, server Server, v variant) *databases {
	if server.Kind != nil {
		servers.Get(t, server.Kind) // or skips this test, not a rule
	}
	return &databases{t: t, server: server, variant: v, patience: 5 * time.Second}
}

// take connects to a database that is as new, and that is the test's alone.
func (d *databases) take(t testing.TB) *gorm.DB {
	t.Helper()
	one := d.pop()
	if one == nil {
		one = &database{dsn: d.server.New(d.t)}
	}
	t.Cleanup(func() { d.giveBack(t, one) }) // when the test has closed its pools
	db := d.variant.connect(t, d.server, one.dsn)
	if one.relations == nil {
		d.variant.prepare(t, db)
		require.NoError(t, d.visit(one.dsn, one.remember))
	}
	return db
}

func (d *databases) pop() *database {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.free) == 0 {
		return nil
	}
	last := len(d.free) - 1
	one := d.free[last]
	d.free = d.free[:last]
	return one
}

// giveBack empties a database, to be used again. One that cannot be emptied at
// once, or which a failed test leaves, is not.
func (d *databases) giveBack(t testing.TB, one *database) {
	if t.Failed() {
		return
	}
	if err := d.visit(one.dsn, one.empty); err != nil {
		t.Log("the next rule gets another database:", err)
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.free = append(d.free, one)
}

// visit runs fn on a connection of its own, whatever the variant.
func (d *databases) visit(dsn string, fn func(*gorm.DB) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), d.patience)
	defer cancel()
	db, err := gorm.Open(d.server.Open(dsn), &gorm.Config{Logger: logger.Discard})
	if err != nil {
		return err
	}
	pool, err := db.DB()
	if err != nil {
		return err
	}
	pool.SetMaxOpenConns(1)
	return errors.Join(fn(db.WithContext(ctx)), pool.Close())
}

// remember keeps what the database is like.
func (d *database) remember(db *gorm.DB) error {
	d.rows = map[string][][]any{}
	if err := db.Raw(catalogs[db.Name()].relations).Scan(&d.relations).Error; err != nil {
		return err
	}
	for _, r := range d.relations {
		rows, err := allRows(db, r.Table)
		if err != nil {
			return err
		}
		d.rows[r.Table] = rows
	}
	return nil
}

// empty makes the database what it was, or returns an error.
func (d *database) empty(db *gorm.DB) error {
	if err := alone(db); err != nil {
		return err
	}
	var relations []relation
	if err := db.Raw(catalogs[db.Name()].relations).Scan(&relations).Error; err != nil {
		return err
	}
	if !slices.Equal(relations, d.relations) {
		return errors.New("its tables or partitions have changed")
	}
	for table, rows := range d.rows {
		if len(rows) == 0 {
			if err := db.Exec("DELETE FROM " + table).Error; err != nil {
				return err
			}
			continue
		}
		now, err := allRows(db, table)
		if err != nil {
			return err
		}
		if !reflect.DeepEqual(now, rows) {
			return fmt.Errorf("the rows of %s have changed", table)
		}
	}
	return nil
}

// alone waits until nobody else is in the database: a session ends a moment
// after its client has closed it.
func alone(db *gorm.DB) error {
	var sessions int
	for {
		err := db.Raw(catalogs[db.Name()].sessions).Scan(&sessions).Error
		if err == nil && sessions == 0 {
			return nil
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-db.Statement.Context.Done():
			return fmt.Errorf("%d others are in it: %w", sessions, errors.Join(err, db.Statement.Context.Err()))
		}
	}
}

func allRows(db *gorm.DB, table string) ([][]any, error) {
	return allOf(db.Raw("SELECT * FROM " + table))
}

func allOf(query *gorm.DB) (all [][]any, err error) {
	rows, err := query.Rows()
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	for rows.Next() {
		row, targets := make([]any, len(columns)), make([]any, len(columns))
		for i := range row {
			targets[i] = &row[i]
		}
		if err := rows.Scan(targets...); err != nil {
			return nil, err
		}
		all = append(all, row)
	}
	return all, rows.Err()
}
