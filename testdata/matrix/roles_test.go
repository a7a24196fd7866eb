package matrix

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/gormtx"
	"github.com/onward-go/outbox/internal/facetest"
	"github.com/onward-go/outbox/persistence"
)

// roles are the users that docs/security.md makes, on a server of the matrix.
type roles struct {
	t       *testing.T
	server  Server
	dsn     string
	suffix  string // of the users' names, which are the server's, not the database's
	admin   *gorm.DB
	options []gormtx.Option
	grants  []string
}

// sqlOf returns the blocks of SQL of a section of the page.
func sqlOf(t *testing.T, section string) []string {
	t.Helper()
	_, text, found := strings.Cut(readPage(t, "security.md"), "\n### "+section+"\n")
	require.True(t, found)
	text, _, _ = strings.Cut(text, "\n##")
	return sqlBlocks(t, text)
}

var comment = regexp.MustCompile(`(?m)^--.*$`)

// statements returns those of a block, for users of this test's own.
func (r *roles) statements(block string) []string {
	var all []string
	for _, s := range strings.Split(comment.ReplaceAllString(block, ""), ";") {
		for _, user := range []string{"owner", "producer", "dispatcher"} {
			s = regexp.MustCompile(`\boutbox_`+user+`\b`).ReplaceAllString(s, "outbox_"+user+r.suffix)
		}
		if s = strings.TrimSpace(s); s != "" {
			all = append(all, s)
		}
	}
	return all
}

func (r *roles) exec(statements ...string) {
	r.t.Helper()
	for _, s := range statements {
		require.NoError(r.t, r.admin.Exec(s).Error, s)
	}
}

// newRoles does what the page says.
func newRoles(t *testing.T, server Server) *roles {
	r := &roles{t: t, server: server, dsn: server.New(t), suffix: "_" + strings.ToLower(rand.Text()[:6])}
	r.admin = Open(t, server.Open(r.dsn), &gorm.Config{Logger: logger.Discard})
	section := "MySQL and MariaDB"
	if server.Pgx {
		section = "PostgreSQL"
		r.options = []gormtx.Option{gormtx.WithSchema("outbox")}
	}
	blocks := sqlOf(t, section)
	require.Len(t, blocks, 2)
	t.Cleanup(r.drop)
	r.exec(r.statements(blocks[0])...)
	require.NoError(t, gormtx.Migrate(t.Context(), r.connect("owner"), r.options...))
	r.grants = r.statements(blocks[1])
	r.exec(r.grants...)
	// What is the application's own.
	r.exec("CREATE TABLE users (id VARCHAR(20) PRIMARY KEY, status VARCHAR(20))", "CREATE TABLE api_keys (id VARCHAR(20) PRIMARY KEY)",
		"GRANT SELECT, INSERT, UPDATE ON users TO outbox_producer"+r.suffix, "GRANT SELECT, INSERT ON api_keys TO outbox_dispatcher"+r.suffix)
	return r
}

// drop drops the users, while the database is still there.
func (r *roles) drop() {
	for _, user := range []string{"producer", "dispatcher", "owner"} {
		user = "outbox_" + user + r.suffix
		if r.server.Pgx {
			r.exec("DROP OWNED BY " + user + " CASCADE")
		}
		r.exec("DROP USER " + user)
	}
}

// connect connects as one of the users.
func (r *roles) connect(user string) *gorm.DB {
	r.t.Helper()
	return Open(r.t, r.server.Open(r.as(user)), &gorm.Config{Logger: logger.Discard})
}

// as returns the DSN of one of the users.
func (r *roles) as(user string) string {
	passwords := map[string]string{"owner": "choose-1", "producer": "choose-2", "dispatcher": "choose-3"}
	name := "outbox_" + user + r.suffix
	if r.server.Pgx {
		u, err := url.Parse(r.dsn)
		require.NoError(r.t, err)
		u.User = url.UserPassword(name, passwords[user])
		return u.String()
	}
	config, err := mysql.ParseDSN(r.dsn)
	require.NoError(r.t, err)
	config.User, config.Passwd = name, passwords[user]
	return config.FormatDSN()
}

// table returns the name of one of the outbox's tables.
func (r *roles) table(name string) string {
	if r.server.Pgx {
		return "outbox." + name
	}
	return name
}

// refused reports whether the server refused a statement for want of a right.
func refused(err error) bool {
	if e, ok := errors.AsType[*mysql.MySQLError](err); ok {
		return e.Number == 1142 || e.Number == 1143 || e.Number == 1044 || e.Number == 1227
	}
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && e.Code == "42501"
}

// publish is what a producer does.
func (r *roles) publish(db *gorm.DB, evts ...events.Event) error {
	outbox := gormtx.New(db, r.options...)
	return outbox.Atomically(r.t.Context(), func(ctx context.Context) error {
		if err := gormtx.Tx(ctx).Exec("INSERT INTO users (id, status) VALUES (?, 'suspended')", events.NewID()[:20]).Error; err != nil {
			return err
		}
		return events.NewPublisher(outbox).Publish(ctx, evts...)
	})
}

// produce has a producer publish in each way, with a dedup key that is taken as
// well.
func (r *roles) produce(db *gorm.DB) error {
	key := events.NewID()
	if err := r.publish(db, newEvents(1)...); err != nil {
		return err
	}
	evts := newEvents(3)
	evts[0].DedupKey = key
	evts[1].DedupKey = key + "-2"
	if err := r.publish(db, evts...); err != nil {
		return err
	}
	again := newEvents(2)
	again[0].DedupKey, again[1].DedupKey = key, key+"-3"
	if err := r.publish(db, again...); !errors.Is(err, persistence.ErrDuplicate) {
		return fmt.Errorf("the key is taken: %w", err)
	}
	return nil
}

// dispatch has a dispatcher of a new name do all that one does: handlers that
// succeed, fail and give up, batches, dead letters, and the operator's hand.
func (r *roles) dispatch(db *gorm.DB) error {
	ctx := r.t.Context()
	outbox := gormtx.New(db, r.options...)
	name := events.NewID()
	d := events.NewDispatcher(outbox, outbox, outbox, outbox, events.WithName(name), events.WithMaxAttempts(2))
	calls := 0
	err := errors.Join(
		d.Subscribe("t", "a-effects "+name, func(ctx context.Context, evt events.Event) error {
			return gormtx.Tx(ctx).Exec("INSERT INTO api_keys (id) VALUES (?)", events.NewID()[:20]).Error
		}),
		d.Subscribe("t", "b-fails "+name, func(context.Context, events.Event) error {
			if calls++; calls == 1 {
				return errors.New("the first time")
			}
			return nil
		}),
		d.Subscribe("t", "c-gives-up "+name, func(context.Context, events.Event) error { return events.Permanent(errors.New("never")) }),
		d.SubscribeBatch("t", "d-batch "+name, func(context.Context, []events.Event) error { return nil }),
	)
	for err == nil {
		n := 0
		if n, err = d.RunOnce(ctx, 100); errors.Is(err, events.ErrDeadLettered) || err != nil && strings.Contains(err.Error(), "the first time") {
			err = denied(err)
			continue
		}
		if n == 0 {
			break
		}
	}
	if err != nil {
		return err
	}
	letters := events.NewDeadLetters(outbox, outbox)
	page, err := letters.List(ctx, persistence.DeadLetterQuery{Dispatcher: name, State: persistence.DeadLetterDead, Limit: 2})
	if err != nil || len(page) == 0 {
		return fmt.Errorf("%d dead letters: %w", len(page), err)
	}
	if err := letters.Requeue(ctx, page[0].Marker()); err != nil {
		return err
	}
	_, err = d.RunOnce(ctx, 100)
	if err := denied(err); err != nil {
		return err
	}
	if err := letters.Discard(ctx, page[0].Marker()); err != nil {
		return err
	}
	if _, err := letters.Purge(ctx, time.Now().Add(time.Hour)); err != nil {
		return err
	}
	// Counts are saved when ten seconds have passed, for which no test waits.
	lease, err := outbox.Acquire(ctx, name, "test", time.Minute)
	if err != nil {
		return err
	}
	counts := []persistence.Bucket{{Start: time.Now().UTC().Truncate(persistence.BucketWidth), Rows: 1}}
	return errors.Join(outbox.Save(ctx, lease, persistence.Progress{Counts: counts}), outbox.Release(ctx, lease),
		outbox.Rewind(ctx, name, persistence.Cursor{}), outbox.Forget(ctx, name))
}

// denied is nil for errors that are none of rights.
func denied(err error) error {
	if err != nil && (strings.Contains(err.Error(), "denied")) {
		return err
	}
	return nil
}

func onRoles(t *testing.T, f func(t *testing.T, r *roles)) {
	for _, server := range Servers {
		if server.Kind == nil { // SQLite has no users
			continue
		}
		t.Run(server.Name, func(t *testing.T) { f(t, newRoles(t, server)) })
	}
}

func TestRolesHaveWhatTheyNeedAndNoMore(t *testing.T) {
	onRoles(t, func(t *testing.T, r *roles) {
		producer, dispatcher, owner := r.connect("producer"), r.connect("dispatcher"), r.connect("owner")
		require.NoError(t, r.produce(producer))
		require.NoError(t, r.dispatch(dispatcher))
		r.retain(owner)

		outbox := r.table("outbox")
		change := []string{"UPDATE " + outbox + " SET payload = ''", "DELETE FROM " + outbox, "TRUNCATE " + outbox, "DROP TABLE " + outbox}
		requireRefused(t, producer, append(change, "SELECT * FROM "+outbox, "SELECT count(*) FROM "+outbox, "SELECT id FROM "+outbox,
			"SELECT * FROM "+r.table("outbox_dead_letters"), "SELECT * FROM "+r.table("outbox_cursors"))...)
		requireRefused(t, dispatcher, append(change,
			"INSERT INTO "+outbox+" (id, aggregate_type, aggregate_id, event_type, payload) VALUES ('x', 'x', 'x', 'x', 'x')",
			"DELETE FROM "+r.table("outbox_idempotency"), "UPDATE "+r.table("outbox_schema")+" SET version = 2")...)
		if r.server.Pgx {
			partition := "outbox.outbox_p" + time.Now().UTC().Format("2006_01")
			requireRefused(t, producer, "SELECT * FROM "+partition, "INSERT INTO "+outbox+" (id, aggregate_type, aggregate_id, event_type) VALUES ('x', 'x', 'x', 'x') RETURNING *")
			requireRefused(t, dispatcher, "DELETE FROM "+partition)
		}
		for _, err := range []error{r.dispatch(producer), r.publish(dispatcher, newEvents(1)...), gormtx.Migrate(t.Context(), producer, gormtx.WithTablePrefix("x_"))} {
			require.Error(t, err)
		}
	})
}

func requireRefused(t *testing.T, db *gorm.DB, statements ...string) {
	t.Helper()
	for _, s := range statements {
		err := db.Exec(s).Error
		require.True(t, refused(err), "%s: %v", s, err)
	}
}

// retain has the owner make and drop partitions, and free dedup keys.
func (r *roles) retain(owner *gorm.DB) {
	r.t.Helper()
	ctx := r.t.Context()
	pool, err := owner.DB()
	require.NoError(r.t, err)
	naming := facetest.Naming{}
	options := []gormtx.RetentionOption{gormtx.WithNoConsumers(), gormtx.WithKeepKeys(time.Microsecond)}
	for _, o := range r.options {
		options = append(options, o)
		naming.Schema = "outbox"
	}
	require.NoError(r.t, facetest.Partition(ctx, pool, owner.Name(), naming, startOfMonth(-2)))
	report, err := gormtx.RunRetention(ctx, owner, 0, options...)
	require.NoError(r.t, err)
	require.Len(r.t, report.Dropped, 2, "of events and of markers")
	require.Positive(r.t, report.PurgedKeys)
	report, err = gormtx.New(owner, r.options...).EnsurePartitions(ctx, persistence.MonthsAhead+2, persistence.RetentionOptions{})
	require.NoError(r.t, err)
	require.Len(r.t, report.Created, 4, "two of each")
}

var grant = regexp.MustCompile(`^GRANT (.+) ON (.+) TO (.+)$`)

// Without any one of the rights something fails, so none is there in vain.
func TestNoRightIsThereInVain(t *testing.T) {
	onRoles(t, func(t *testing.T, r *roles) {
		for _, g := range r.grants {
			m := grant.FindStringSubmatch(g)
			require.NotNil(t, m, g)
			for _, right := range strings.Split(m[1], ", ") {
				if r.server.Name == "mariadb" && right == "UPDATE" && m[2] == "outbox_fence" {
					continue // a locking read needs it on MySQL
				}
				r.exec("REVOKE " + right + " ON " + m[2] + " FROM " + m[3])
				// Pools of their own, since a store checks the tables once.
				err := errors.Join(r.produce(r.connect("producer")), r.dispatch(r.connect("dispatcher")))
				require.Error(t, err, "%s on %s, of %s", right, m[2], m[3])
				r.exec("GRANT " + right + " ON " + m[2] + " TO " + m[3])
			}
		}
		require.NoError(t, errors.Join(r.produce(r.connect("producer")), r.dispatch(r.connect("dispatcher"))))
	})
}
