package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/testdata/servers"
)

// mainVar makes the test binary the command itself.
const mainVar = "OUTBOX_DEMO_TEST_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(mainVar) != "" {
		main()
	}
	servers.Main(m)
}

// command is the demo as a process, whose temporary files are in dir.
func command(t *testing.T, dsn, dir string, args ...string) *exec.Cmd {
	t.Helper()
	program, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Env = append(os.Environ(), mainVar+"=1", "DSN="+dsn, "TMPDIR="+dir)
	return cmd
}

func requireEmpty(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, entries)
}

func TestDemo(t *testing.T) {
	for server, dsn := range map[string]func(t *testing.T) string{
		"sqlite":   func(*testing.T) string { return "" },
		"postgres": func(t *testing.T) string { return servers.CreateDatabase(t, servers.Get(t, servers.Postgres)) },
	} {
		t.Run(server, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			cmd := command(t, dsn(t), dir, "-users", "200")
			var out, problems bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &problems
			require.NoError(t, cmd.Run(), "%s\n%s", &out, &problems)

			lines := strings.Split(strings.TrimSpace(out.String()), "\n")
			var got struct {
				server                            string
				published, delivered, lost, twice int
			}
			_, err := fmt.Sscanf(lines[len(lines)-1], "demo server=%s published=%d delivered=%d lost=%d twice=%d",
				&got.server, &got.published, &got.delivered, &got.lost, &got.twice)
			require.NoError(t, err, out.String())
			require.Equal(t, server, got.server)
			require.Equal(t, 180, got.published)
			require.Equal(t, 180, got.delivered)
			require.Zero(t, got.lost)
			require.Zero(t, got.twice)
			require.Contains(t, out.String(), "killed the dispatcher")
			requireEmpty(t, dir)
		})
	}
}

func TestInterrupt(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cmd := command(t, "", dir, "-users", "200", "-rate", "10")
	var problems bytes.Buffer
	cmd.Stderr = &problems
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())

	lines := bufio.NewScanner(out)
	for lines.Scan() && !strings.HasPrefix(lines.Text(), "published") {
	}
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	_, err = io.Copy(io.Discard, out)
	require.NoError(t, err)
	// Wait returns when the dispatcher has ended, too: it has the same stderr.
	require.Error(t, cmd.Wait())
	require.Equal(t, 1, cmd.ProcessState.ExitCode())
	require.Equal(t, "demo: interrupted\n", problems.String())
	requireEmpty(t, dir)
}
