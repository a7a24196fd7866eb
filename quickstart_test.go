package outbox_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// fenced returns the blocks of a page that are marked with the language.
func fenced(t *testing.T, page, language string) []string {
	t.Helper()
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	var blocks []string
	for _, block := range strings.Split(string(text), "\n```"+language+"\n")[1:] {
		block, _, closed := strings.Cut(block, "\n```\n")
		require.True(t, closed, "%s: a block is not closed", page)
		blocks = append(blocks, block+"\n")
	}
	return blocks
}

// A newcomer copies the blocks of the quick start, one after the other, into an
// empty module, and sees the event delivered.
func TestQuickStart(t *testing.T) {
	const page = "docs/quickstart.md"
	dir := t.TempDir()
	root, err := os.Getwd()
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "main.go"), []byte(strings.Join(fenced(t, page, "go"), "\n")), 0o644))
	sums, err := os.ReadFile("go.sum")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.sum"), sums, 0o644))

	run := func(line string) (output string) {
		t.Helper()
		args := strings.Fields(line)
		require.Equal(t, "go", args[0], line)
		command := exec.CommandContext(t.Context(), "go", args[1:]...)
		command.Dir = dir
		command.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off", "CGO_ENABLED=0")
		var stderr bytes.Buffer
		command.Stderr = &stderr
		out, err := command.Output()
		require.NoError(t, err, "%s: %s", line, stderr.String())
		return string(out)
	}
	var output string
	for _, block := range fenced(t, page, "sh") {
		for line := range strings.Lines(block) {
			if packages, isGet := strings.CutPrefix(line, "go get "); isGet {
				// This version of the library, and what it is tested with.
				run("go mod edit -replace=github.com/onward-go/outbox=" + root)
				for _, p := range strings.Fields(packages) {
					run("go mod edit -require=" + p + "@" + version(t, p))
				}
				continue
			}
			output = run(strings.TrimSpace(line))
		}
	}
	want := fenced(t, page, "text")
	require.Len(t, want, 1)
	require.Equal(t, want[0], output)
}

// version returns the version of a module that go.mod requires.
func version(t *testing.T, module string) string {
	t.Helper()
	if module == "github.com/onward-go/outbox" {
		return "v0.0.0"
	}
	mod, err := os.ReadFile("go.mod")
	require.NoError(t, err)
	m := regexp.MustCompile(`\s` + regexp.QuoteMeta(module) + ` (v\S+)`).FindStringSubmatch(string(mod))
	require.NotNil(t, m, "go.mod does not require %s", module)
	return m[1]
}
