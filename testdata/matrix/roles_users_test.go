package matrix

import (
	"crypto/rand"
	"errors"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/onward-go/outbox/gormtx"
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
