package upgrade

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// before is the last commit whose library knows no compatible migrations: services of
// that time have to go on while the tables change under them.
const before = "4db3e88ca11696045ca4473ade911d5426f31f80"

// build builds the replica against the library in a checkout.
func build(t *testing.T, checkout string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "replica")
	run(t, filepath.Join(checkout, "testdata"), "go", "build", "-o", program, "./upgrade/replica")
	return program
}

// checkoutOf writes the library of a commit into a folder, with the replica of today.
func checkoutOf(t *testing.T, commit string) string {
	t.Helper()
	root := rootOf(t)
	if exec.Command("git", "-C", root, "cat-file", "-e", commit+"^{commit}").Run() != nil {
		// A shallow clone has today's files only.
		run(t, root, "git", "fetch", "--quiet", "--depth", "1", "origin", commit)
	}
	dir := t.TempDir()
	archive := filepath.Join(dir, "library.tar")
	run(t, root, "git", "archive", "--output", archive, commit)
	run(t, dir, "tar", "-xf", archive)
	replica := filepath.Join(dir, "testdata", "upgrade", "replica")
	require.NoError(t, os.MkdirAll(replica, 0o755))
	program, err := os.ReadFile(filepath.Join("replica", "main.go"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(replica, "main.go"), program, 0o644))
	return dir
}

func rootOf(t *testing.T) string {
	t.Helper()
	return strings.TrimSpace(run(t, ".", "git", "rev-parse", "--show-toplevel"))
}

// run runs a command that has to succeed, and returns what it prints.
func run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	var messages strings.Builder
	cmd.Stderr = &messages
	out, err := cmd.Output()
	require.NoError(t, err, "%s %s, which needs a clone of the repository, and its history or its origin: %s", name, strings.Join(args, " "), &messages)
	return string(out)
}
