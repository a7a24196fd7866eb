package outbox_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	testName = regexp.MustCompile("`(Test[A-Za-z0-9]+)`")
	ruleName = regexp.MustCompile("(?i:rule) `([^`]+)`")
	link     = regexp.MustCompile(`\]\(([^)#:]+)\)`)
)

// source returns the text of all Go files whose names end in suffix.
func source(t *testing.T, suffix string) string {
	t.Helper()
	var all strings.Builder
	require.NoError(t, filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, suffix) {
			return err
		}
		text, err := os.ReadFile(path)
		all.Write(text)
		return err
	}))
	return all.String()
}

func TestDocsNameTestsThatExist(t *testing.T) {
	text, err := os.ReadFile("docs/guarantees.md")
	require.NoError(t, err)
	// A name may be broken over two lines.
	guarantees := strings.Join(strings.Fields(string(text)), " ")
	tests := source(t, "_test.go")
	names := testName.FindAllStringSubmatch(guarantees, -1)
	require.NotEmpty(t, names)
	for _, m := range names {
		if m[1] == "TestDocs" {
			continue
		}
		require.True(t, strings.Contains(tests, "func "+m[1]+"(t *testing.T)"), "there is no test %s", m[1])
	}
	rules := source(t, ".go")
	names = ruleName.FindAllStringSubmatch(guarantees, -1)
	require.NotEmpty(t, names)
	for _, m := range names {
		require.True(t, strings.Contains(rules, `{"`+m[1]+`", func(s *suite)`), "there is no rule %q", m[1])
	}
}

// pages returns every page of the documentation.
func pages(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md"} {
		found, err := filepath.Glob(pattern)
		require.NoError(t, err)
		all = append(all, found...)
	}
	require.Contains(t, all, "docs/guarantees.md")
	return all
}

func TestDocsHaveNoDeadLink(t *testing.T) {
	for _, page := range pages(t) {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			_, err := os.Stat(filepath.Join(filepath.Dir(page), m[1]))
			require.NoError(t, err, page)
		}
	}
}

// Code that a page shows is a part of an example that is compiled and run.
func TestDocsShowCodeThatRuns(t *testing.T) {
	var examples strings.Builder
	for _, file := range []string{"gormtx/example_test.go", "sqltx/example_test.go", "sqltx/example_sqlc_test.go", "pgxtx/example_test.go", "events/example_test.go",
		"testdata/iam/entiam/example_test.go", "testdata/iam/entiam/tx.go"} {
		example, err := os.ReadFile(file)
		require.NoError(t, err)
		examples.Write(example)
		examples.WriteString(strings.ReplaceAll(string(example), "\n\t", "\n")) // the body of a function
	}
	shown := 0
	for _, page := range pages(t) {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, block := range strings.Split(string(text), "```go\n")[1:] {
			block, _, _ = strings.Cut(block, "```")
			require.Contains(t, examples.String(), block, page)
			shown++
		}
	}
	require.Greater(t, shown, 1)
}

// What a page shows of outboxctl is what it says in the situations that testdata/ctl
// makes.
func TestDocsShowWhatOutboxctlSays(t *testing.T) {
	var said strings.Builder
	files, err := filepath.Glob("testdata/ctl/testdata/*.txt")
	require.NoError(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		said.Write(text)
		said.WriteString("\n")
	}
	shown := 0
	for _, page := range pages(t) {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, block := range strings.Split(string(text), "```text\n$ outboxctl")[1:] {
			block, _, _ = strings.Cut(block, "```")
			require.Contains(t, said.String(), "$ outboxctl"+block+"\n", "%s: the whole answer to a command", page)
			shown++
		}
	}
	require.Greater(t, shown, 5)
}
