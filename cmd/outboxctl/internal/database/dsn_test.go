package database

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/sqltx"
)

func TestTheDSNTellsTheDatabase(t *testing.T) {
	for dsn, want := range map[string]sqltx.Dialect{
		"postgres://u:p@host/db":        sqltx.Postgres,
		"postgresql:///db?host=/run":    sqltx.Postgres,
		"host=/run dbname=db":           sqltx.Postgres,
		" user = u password='a b'":      sqltx.Postgres,
		"mysql://u:p@host/db":           sqltx.MySQL,
		"mariadb://u@host:3307/db":      sqltx.MySQL,
		"u:p@tcp(host:3306)/db":         sqltx.MySQL,
		"u:p@unix(/run/mysqld.sock)/db": sqltx.MySQL,
		"u@/db":                         sqltx.MySQL,
		"sqlite:outbox.db":              sqltx.SQLite,
		"file:outbox.db?mode=ro":        sqltx.SQLite,
	} {
		got, err := DialectOf(dsn, "")
		require.NoError(t, err, dsn)
		require.Equal(t, want, got, dsn)
	}
	for _, dsn := range []string{"outbox.db", "localhost", "oracle://u:secret@host/db", "/var/lib/outbox.db"} {
		_, err := DialectOf(dsn, "")
		require.ErrorIs(t, err, ErrDSN, dsn)
		require.NotContains(t, err.Error(), dsn)
	}
	for name, want := range map[string]sqltx.Dialect{"postgres": sqltx.Postgres, "mariadb": sqltx.MySQL, "mysql": sqltx.MySQL, "sqlite": sqltx.SQLite} {
		got, err := DialectOf("outbox.db", name)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	_, err := DialectOf("outbox.db", "oracle")
	require.ErrorIs(t, err, ErrDSN)
}

func TestURLsOfMySQL(t *testing.T) {
	c, err := mysqlConfig("mysql://us%3Aer:p%40ss%2Fw%3Ard@host/outbox?tls=skip-verify&loc=UTC")
	require.NoError(t, err)
	require.Equal(t, "us:er", c.User)
	require.Equal(t, "p@ss/w:rd", c.Passwd)
	require.Equal(t, "host:3306", c.Addr)
	require.Equal(t, "outbox", c.DBName)
	require.Equal(t, "skip-verify", c.TLSConfig)
	c, err = mysqlConfig("mariadb://u@[::1]:3307/db")
	require.NoError(t, err)
	require.Equal(t, "[::1]:3307", c.Addr)
	c, err = mysqlConfig("u:p@tcp(host:3308)/db")
	require.NoError(t, err)
	require.Equal(t, "host:3308", c.Addr)
	for _, dsn := range []string{"mysql://", "mysql:///db", "mysql://u:p@host:port/db", "mysql://u:%zz@host/db"} {
		_, err := mysqlConfig(dsn)
		require.Error(t, err, dsn)
	}
}

func TestSecretsAreRedacted(t *testing.T) {
	for dsn, hidden := range map[string][]string{
		"postgres://u:p%40ss@host/db":                          {"p%40ss", "p@ss"},
		"postgres://u:p@ss@host/db":                            {"p@ss"},
		"host=h password='it\\'s secret' sslpassword=other":    {"it\\'s secret", "other"},
		"u:p:a/s@s@tcp(host:3306)/db":                          {"p:a/s@s"},
		"mysql://u@host/db?password=hidden&tls=true":           {"hidden"},
		"sqlite:outbox.db?_auth_pass=hidden2&_pragma=key('k')": {"hidden2"},
		"oracle://u:hidden3@host":                              {"hidden3"},
	} {
		for _, secret := range hidden {
			text := Redact("before u:"+secret+"@host and password="+secret+" between "+dsn+" after", SecretsIn(dsn))
			require.NotContains(t, text, secret, dsn)
			require.True(t, strings.HasPrefix(text, "before ") && strings.HasSuffix(text, " after"), text)
		}
	}
	require.Equal(t, "nothing to hide", Redact("nothing to hide", SecretsIn("")))
	quoted := fmt.Sprintf("unknown command %q", `u:a"b@host`)
	require.Equal(t, `unknown command "*****"`, Redact(quoted, SecretsIn(`u:a"b@host`)))
}

// A password may be a word that is also said, which is no secret where it is said.
func TestWordsThatArePasswordsElsewhereAreNotMasked(t *testing.T) {
	for _, password := range []string{"a", "outbox", "postgres"} {
		const said = "outboxctl: outbox table app.outbox: a dispatcher \"outbox\" is not found in database postgres"
		require.Equal(t, said, Redact(said, SecretsIn("postgres://u:"+password+"@host/outbox")))
		require.Equal(t, "connect to u:*****@host/outbox", Redact("connect to u:"+password+"@host/outbox", SecretsIn("postgres://u:"+password+"@host/outbox")))
	}
}

// A part of the password must not be taken for the host or the database, whose names
// are told.
func TestAURLWhosePasswordIsNotEncodedIsRefused(t *testing.T) {
	for _, dsn := range []string{
		"postgres://u:a@b@host/db", "postgres://u:12/b@host/db", "postgres://u:12?b@host/db", "postgres://u:12#b@host/db", "postgres://u:p@host/db#b",
		"mysql://u:a@b@host/db", "mariadb://u:12/b@host/db",
	} {
		dialect, err := DialectOf(dsn, "")
		require.NoError(t, err)
		_, _, err = Open(dsn, dialect, false)
		require.ErrorIs(t, err, ErrDSN, dsn)
		require.ErrorContains(t, err, "percent-encode", dsn)
	}
	for _, dsn := range []string{"postgres://u:a%40b@host/db?user=x%40y", "mysql://u:p@host/db", "u:a@b@tcp(host:3306)/db", "postgres:///db?host=/run"} {
		dialect, err := DialectOf(dsn, "")
		require.NoError(t, err)
		db, _, err := Open(dsn, dialect, false)
		require.NoError(t, err, dsn)
		require.NoError(t, db.Close())
	}
}
