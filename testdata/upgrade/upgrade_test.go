package upgrade

import (
	"bytes"
	"database/sql"
	"fmt"
	"io"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/sqltx"
	"github.com/onward-go/outbox/testdata/matrix"
	"github.com/onward-go/outbox/testdata/servers"
)

func TestMain(m *testing.M) { servers.Main(m) }

// The release before works on tables that are upgraded under it, beside replicas of
// today, and after a rollback to it: nothing is lost, doubled, out of order or refused.
func TestTheReleaseBeforeWorksBesideThisOne(t *testing.T) {
	former, today := build(t, checkoutOf(t, before)), build(t, rootOf(t))
	for _, server := range matrix.Servers {
		if server.Again {
			continue
		}
		t.Run(server.Name, func(t *testing.T) {
			s := newSituation(t, server)
			s.once(former, "-migrate")
			old := s.start(former, "old")
			s.works("old")

			t.Log("the tables are upgraded under the release before")
			s.once(today, "-migrate")
			s.works("old")
			s.once(former, "-migrate")

			t.Log("replicas of both releases")
			current := s.start(today, "new")
			s.publishes("old", "new")
			old.stop()
			s.works("new")
			old = s.start(former, "restarted")
			current.stop() // who has the lease now is the release before
			s.works("restarted")
			current = s.start(today, "beside")
			s.once(former, "-retain")
			s.once(today, "-retain")
			s.publishes("restarted", "beside")

			t.Log("the release of today alone")
			old.stop()
			s.works("beside")
			current.stop()

			t.Log("rolled back to the release before, on the upgraded tables")
			old = s.start(former, "back")
			s.works("back")
			old.stop()

			current = s.start(today, "again")
			s.settled()
			current.stop()
			s.exactlyOnceInOrder()
		})
	}
}

// situation is a database, and what its services have done.
type situation struct {
	*testing.T
	db      *sql.DB
	dialect string
	driver  string
	dsn     string
}

func newSituation(t *testing.T, server matrix.Server) *situation {
	s := &situation{T: t, dsn: server.New(t)}
	counter := "seq INTEGER PRIMARY KEY AUTOINCREMENT"
	switch {
	case server.Schemas:
		s.dialect, s.driver, counter = string(sqltx.Postgres), "pgx", "seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY"
	case server.Partitions:
		s.dialect, s.driver, counter = string(sqltx.MySQL), "mysql", "seq BIGINT AUTO_INCREMENT PRIMARY KEY"
	default:
		s.dialect, s.driver = string(sqltx.SQLite), "sqlite"
		s.dsn += "&_txlock=immediate"
	}
	db, err := sql.Open(s.driver, s.dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	s.db = db
	for _, statement := range []string{
		"CREATE TABLE aggregates (id VARCHAR(64) PRIMARY KEY, n INTEGER NOT NULL)",
		"INSERT INTO aggregates VALUES ('a-0', 0), ('a-1', 0), ('a-2', 0)",
		"CREATE TABLE published (aggregate VARCHAR(64) NOT NULL, n INTEGER NOT NULL, replica VARCHAR(64) NOT NULL, PRIMARY KEY (aggregate, n))",
		"CREATE TABLE effects (" + counter + ", aggregate VARCHAR(64) NOT NULL, n INTEGER NOT NULL, replica VARCHAR(64) NOT NULL)",
	} {
		_, err := db.ExecContext(t.Context(), statement)
		require.NoError(t, err)
	}
	return s
}

func (s *situation) command(program, name string, args ...string) *exec.Cmd {
	return exec.Command(program, append([]string{"-dialect", s.dialect, "-driver", s.driver, "-dsn", s.dsn, "-name", name}, args...)...)
}

// once runs a replica that does one thing.
func (s *situation) once(program, what string) {
	s.Helper()
	out, err := s.command(program, "operator", what).CombinedOutput()
	require.NoError(s, err, "%s: %s", what, out)
}

// replica is a process at work.
type replica struct {
	s        *situation
	name     string
	cmd      *exec.Cmd
	stdin    io.Closer
	messages bytes.Buffer
	stopped  bool
}

func (s *situation) start(program, name string) *replica {
	s.Helper()
	r := &replica{s: s, name: name, cmd: s.command(program, name)}
	stdin, err := r.cmd.StdinPipe()
	require.NoError(s, err)
	r.stdin = stdin
	r.cmd.Stderr = &r.messages
	require.NoError(s, r.cmd.Start())
	s.Cleanup(func() {
		if !r.stopped {
			_ = r.cmd.Process.Kill()
			_ = r.cmd.Wait()
			s.Log(r.messages.String())
		}
	})
	return r
}

// stop ends the replica, of which nothing may have been refused.
func (r *replica) stop() {
	r.s.Helper()
	r.stopped = true
	require.NoError(r.s, r.stdin.Close())
	require.NoError(r.s, r.cmd.Wait(), "replica %s: %s", r.name, &r.messages)
}

// patience tells a replica that stands still; it is not to be reached.
const patience = 2 * time.Minute

func (s *situation) eventually(what string, fact func() bool) {
	s.Helper()
	for deadline := time.Now().Add(patience); !fact(); time.Sleep(5 * time.Millisecond) {
		require.True(s, time.Now().Before(deadline), what)
	}
}

func (s *situation) number(query string) (n int) {
	s.Helper()
	require.NoError(s, s.db.QueryRowContext(s.Context(), query).Scan(&n))
	return n
}

// enough is how many events show that something works.
const enough = 20

// publishes waits until each replica has published some more.
func (s *situation) publishes(replicas ...string) {
	s.Helper()
	for _, name := range replicas {
		count := fmt.Sprintf("SELECT count(*) FROM published WHERE replica = '%s'", name)
		from := s.number(count)
		s.eventually(name+" does not publish", func() bool { return s.number(count) >= from+enough })
	}
}

// works waits until a replica has published and applied some more.
func (s *situation) works(name string) {
	s.Helper()
	s.publishes(name)
	count := fmt.Sprintf("SELECT count(*) FROM effects WHERE replica = '%s'", name)
	from := s.number(count)
	s.eventually(name+" does not apply", func() bool { return s.number(count) >= from+enough })
}

// settled waits until all that was published has been applied, so often that more is not
// to come in between.
func (s *situation) settled() {
	s.Helper()
	upTo := s.number("SELECT sum(n) FROM aggregates")
	s.eventually("events are not delivered", func() bool { return s.number("SELECT count(*) FROM effects") >= upTo })
}

// exactlyOnceInOrder checks the effects, which are fewer than what was published by what
// the last replica has not come to: each aggregate's are a beginning of 1, 2, 3 and so on.
func (s *situation) exactlyOnceInOrder() {
	s.Helper()
	rows, err := s.db.QueryContext(s.Context(), "SELECT aggregate, n, replica FROM effects ORDER BY seq")
	require.NoError(s, err)
	defer rows.Close()
	last := map[string]int{}
	for rows.Next() {
		var aggregate, by string
		var n int
		require.NoError(s, rows.Scan(&aggregate, &n, &by))
		require.Equal(s, last[aggregate]+1, n, "aggregate %s, applied by %s", aggregate, by)
		last[aggregate] = n
	}
	require.NoError(s, rows.Err())
	require.Len(s, last, 3)
}
