package ctl

import (
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/schema"
)

// run runs outboxctl with a DSN, by flag or by environment, and returns all that
// it printed.
func run(t *testing.T, byFlag bool, dsn string, args ...string) (string, int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Env = append(os.Environ(), "OUTBOX_DSN="+dsn)
	if byFlag {
		cmd.Env = append(os.Environ(), "OUTBOX_DSN=")
		cmd.Args = append(cmd.Args, "--dsn", dsn)
	}
	out, _ := cmd.CombinedOutput()
	return string(out), cmd.ProcessState.ExitCode()
}

// Whatever is wrong with a DSN, its secrets do not show.
func TestSecretsOfADSNDoNotShow(t *testing.T) {
	t.Parallel()
	for _, password := range []string{"s3cr3t-Wörd", "p@ss:w/rd?x=1&y#%", "%41bc", "' or 1=1", "a b\\c"} {
		escaped := url.QueryEscape(password)
		for name, dsn := range map[string]string{
			"postgres, nobody listens":     "postgres://u:" + escaped + "@127.0.0.1:1/db?connect_timeout=2",
			"postgres, not escaped":        "postgres://u:" + password + "@127.0.0.1:1/db",
			"postgres, bad parameter":      "postgres://u:" + escaped + "@127.0.0.1:1/db?sslmode=never",
			"postgres, bad port":           "postgres://u:" + password + "@127.0.0.1:port/db",
			"postgres, keywords":           "host=127.0.0.1 port=1 user=u password='" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(password) + "' dbname=db",
			"postgres, broken keywords":    "host=127.0.0.1 password=" + password + " sslmode=never port",
			"mysql, nobody listens":        "mysql://u:" + escaped + "@127.0.0.1:1/db",
			"mysql, not escaped":           "mysql://u:" + password + "@127.0.0.1:1/db",
			"mysql, bad parameter":         "mysql://u:" + escaped + "@127.0.0.1:1/db?tls=none-such&parseTime=perhaps",
			"mysql, driver's DSN":          "u:" + password + "@tcp(127.0.0.1:1)/db",
			"mysql, broken driver's DSN":   "u:" + password + "@tcp(127.0.0.1:1/db",
			"mariadb, unknown parameter":   "mariadb://u:" + escaped + "@127.0.0.1:1/db?collation=" + escaped,
			"no scheme":                    "u:" + password + "@127.0.0.1",
			"unknown scheme":               "oracle://u:" + password + "@127.0.0.1/db",
			"sqlite, with a key":           "sqlite:/nowhere/outbox.db?_key=" + escaped,
			"postgres, password parameter": "postgres://u@127.0.0.1:1/db?password=" + escaped,
		} {
			for _, byFlag := range []bool{false, true} {
				for _, command := range [][]string{{"status"}, {"why", "018bcfe5-6800-7000-8000-000000000000", "--json"}, {"migrate", "up", "--timeout", "3s"}} {
					said, code := run(t, byFlag, dsn, command...)
					require.NotZero(t, code, name)
					require.NotEmpty(t, said, name)
					require.NotContains(t, said, password, name)
					require.NotContains(t, said, escaped, name)
				}
			}
		}
	}
}

// A server that refuses the password does not make it show, nor does a DSN whose
// tables are missing.
func TestSecretsOfAServersDSNDoNotShow(t *testing.T) {
	t.Parallel()
	for _, server := range kinds() {
		t.Run(server.Name, func(t *testing.T) {
			t.Parallel()
			s := newSituation(t, server)
			if server.Kind == nil {
				t.Skip("cannot occur: SQLite has no passwords")
			}
			const secret = "s3cr3t-pass"
			user, rest, found := strings.Cut(s.dsn, "@") // test servers ask for no password
			require.True(t, found)
			dsn := user + ":" + secret + "@" + rest
			for _, command := range [][]string{{"status"}, {"why", "018bcfe5-6800-7000-8000-000000000000"}, {"events"}, {"dead", "list"}, {"cursor", "list"}, {"retention", "plan", "--keep", "90d"}} {
				said, code := run(t, true, dsn, command...)
				require.Equal(t, 1, code, said)
				require.NotContains(t, said, secret)
			}
		})
	}
}

// Who puts the DSN where it does not belong is not answered with it.
func TestADSNInTheWrongPlace(t *testing.T) {
	t.Parallel()
	const dsn = "postgres://u:s3cr3t@host/db"
	for _, args := range [][]string{
		{dsn}, {dsn, "status"}, {"status", dsn}, {"dead", dsn}, {"--dns", dsn}, {"--dns=" + dsn}, {"why", dsn}, {"cursor", "list", "--timeout", dsn},
		{"cursor", "rewind", "d", "--to", dsn}, {"--dialect", dsn, "status"}, {"dead", "list", "--after", dsn}, {"--schema", dsn, "--dialect", "sqlite", "migrate", "print"},
	} {
		said, code := run(t, false, "sqlite:nowhere?_key=s3cr3t", args...)
		require.Equal(t, 2, code, "%s\n%s", args, said)
		require.NotContains(t, said, "s3cr3t", "%s", args)
	}
}

func TestTheVersionNamesThatOfTheTables(t *testing.T) {
	t.Parallel()
	said, code := run(t, false, "", "--version")
	require.Zero(t, code)
	require.Contains(t, said, fmt.Sprintf("for tables of version %d", schema.Version))
}

func TestADatabaseThatIsNotThere(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "outbox.db")
	said, code := run(t, false, "sqlite:"+path, "status")
	require.Equal(t, 2, code)
	require.Contains(t, said, "migrate up")
	require.NoFileExists(t, path, "looking makes no database")
	said, code = run(t, false, "", "status")
	require.Equal(t, 2, code)
	require.Contains(t, said, "OUTBOX_DSN")
	said, code = run(t, false, "sqlite:"+path, "migrate", "up")
	require.Zero(t, code, said)
	require.FileExists(t, path)
	said, code = run(t, false, path, "--dialect", "sqlite", "migrate", "status")
	require.Zero(t, code, said)
}
