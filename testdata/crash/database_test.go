package crash

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"gorm.io/driver/mysql"
	"gorm.io/driver/postgres"
	"gorm.io/driver/sqlite"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
	_ "modernc.org/sqlite" // the cgo-free driver

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/gormtx"
	"github.com/onward-go/outbox/testdata/servers"
)

// kind is a kind of database, as a process connects to it.
type kind struct {
	server *servers.Kind // nil where it is embedded
	open   func(dsn string) gorm.Dialector
	serial string // the type of a number that rises by itself
}

var kinds = map[string]kind{
	"postgres": {servers.Postgres, postgres.Open, "BIGSERIAL PRIMARY KEY"},
	"mysql":    {servers.MySQL, mysql.Open, "BIGINT AUTO_INCREMENT PRIMARY KEY"},
	"mariadb":  {servers.MariaDB, mysql.Open, "BIGINT AUTO_INCREMENT PRIMARY KEY"},
	"sqlite": {nil, func(dsn string) gorm.Dialector {
		return sqlite.Dialector{DriverName: "sqlite", DSN: dsn}
	}, "INTEGER PRIMARY KEY AUTOINCREMENT"},
}

// on runs a test on kinds of databases.
func on(t *testing.T, test func(t *testing.T, kind string), names ...string) {
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, name)
		})
	}
}

// newDSN returns the DSN of a new database, on the server that tests share.
func newDSN(t *testing.T, name string) string {
	t.Helper()
	if server := kinds[name].server; server != nil {
		return servers.CreateDatabase(t, servers.Get(t, server))
	}
	return "file:" + filepath.Join(t.TempDir(), "outbox.db") +
		"?_pragma=busy_timeout(10000)&_pragma=journal_mode(wal)&_pragma=synchronous(off)"
}

// database is an outbox and the application's tables beside it.
type database struct {
	*gormtx.Outbox
	db        *gorm.DB
	publisher *events.Publisher
}

func open(name, dsn string, connections int, opts ...gormtx.Option) (*database, error) {
	db, err := gorm.Open(kinds[name].open(dsn), &gorm.Config{Logger: logger.Discard, SkipDefaultTransaction: true})
	if err != nil {
		return nil, err
	}
	pool, err := db.DB()
	if err != nil {
		return nil, err
	}
	pool.SetMaxOpenConns(connections)
	pool.SetMaxIdleConns(connections)
	outbox := gormtx.New(db, opts...)
	return &database{outbox, db, events.NewPublisher(outbox)}, nil
}

// create makes the tables: aggregates with a version each, and effects of the
// handler of events and of that of batches.
func create(t *testing.T, name, dsn string, aggregates int) *database {
	t.Helper()
	d, err := open(name, dsn, 8)
	require.NoError(t, err)
	t.Cleanup(func() {
		pool, err := d.db.DB()
		require.NoError(t, err)
		require.NoError(t, pool.Close())
	})
	require.NoError(t, d.Migrate(t.Context()))
	for _, statement := range []string{
		"CREATE TABLE aggregates (id INTEGER NOT NULL PRIMARY KEY, version INTEGER NOT NULL)",
		"CREATE TABLE effects (" + effectColumns(name) + ")",
		"CREATE TABLE batch_effects (" + effectColumns(name) + ")",
		"CREATE TABLE more_batch_effects (" + effectColumns(name) + ")",
		"CREATE TABLE mended (event_id VARCHAR(64) NOT NULL PRIMARY KEY)",
	} {
		require.NoError(t, d.db.Exec(statement).Error)
	}
	for id := range aggregates {
		require.NoError(t, d.db.Exec("INSERT INTO aggregates (id, version) VALUES (?, 0)", id).Error)
	}
	return d
}

func effectColumns(name string) string {
	return "number " + kinds[name].serial + ", event_id VARCHAR(64) NOT NULL, aggregate INTEGER NOT NULL, version INTEGER NOT NULL"
}

const eventType = "crash.Changed"

// change raises an aggregate's version, which locks it, and publishes that: in
// the transaction of ctx. The event's id is that of [eventID].
func (d *database) change(ctx context.Context, aggregate int) (id string, err error) {
	tx := gormtx.Tx(ctx)
	if err := tx.Exec("UPDATE aggregates SET version = version + 1 WHERE id = ?", aggregate).Error; err != nil {
		return "", err
	}
	var version int
	if err := tx.Raw("SELECT version FROM aggregates WHERE id = ?", aggregate).Scan(&version).Error; err != nil {
		return "", err
	}
	id = eventID(aggregate, version)
	return id, d.publisher.Publish(ctx, events.Event{ID: id, Type: eventType, AggregateType: "Aggregate", AggregateID: strconv.Itoa(aggregate)})
}

func eventID(aggregate, version int) string { return fmt.Sprintf("%d-%d", aggregate, version) }

// versionOf returns an event's aggregate and version.
func versionOf(id string) (aggregate, version int, err error) {
	_, err = fmt.Sscanf(strings.Replace(id, "-", " ", 1), "%d %d", &aggregate, &version)
	return aggregate, version, err
}

// commit changes each of the aggregates once, in transactions of their own.
func (d *database) commit(t *testing.T, aggregates ...int) {
	t.Helper()
	for _, aggregate := range aggregates {
		require.NoError(t, d.Atomically(t.Context(), func(ctx context.Context) error {
			_, err := d.change(ctx, aggregate)
			return err
		}))
	}
}

// holder returns the process that holds the lease, or 0.
func (d *database) holder() (pid int, err error) {
	var owner string
	if err := d.db.Raw("SELECT owner FROM outbox_cursors").Scan(&owner).Error; err != nil || owner == "" {
		return 0, err
	}
	return strconv.Atoi(strings.Split(owner, "/")[1])
}

// stop pauses a process, though not while it begins its work: nobody can take
// over from one that does not end the transaction in which it notes what it
// serves, since the row that this locks is also the lease's.
func (d *database) stop(t *testing.T, p *process) {
	t.Helper()
	eventually(t, "the process stands still, and the cursor is not locked", func() (bool, error) {
		p.pause()
		locked := d.isLocked()
		if locked {
			p.resume()
		}
		return !locked, nil
	})
}

// isLocked reports whether the row of the cursor is, or nobody can tell.
func (d *database) isLocked() bool {
	return d.db.Exec("SELECT token FROM outbox_cursors FOR UPDATE NOWAIT").Error != nil
}
