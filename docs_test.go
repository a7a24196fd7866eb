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

// shown are the files whose code pages show.
func shown(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, pattern := range []string{"*/example*_test.go", "sqltx/*/example_test.go", "eventstest/using_test.go", "docs/guide/*_test.go", "testdata/matrix/goose_test.go", "testdata/matrix/golang_migrate_test.go", "testdata/libraries/example_*_test.go", "testdata/iam/entiam/example_test.go", "testdata/iam/entiam/tx.go"} {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		require.NotEmpty(t, files, pattern)
		for _, file := range files {
			code, err := os.ReadFile(file)
			require.NoError(t, err)
			for depth := range 4 { // the body of a function, of one in it, and so on
				all.WriteString(strings.ReplaceAll(string(code), "\n"+strings.Repeat("\t", depth), "\n"))
			}
		}
	}
	return all.String()
}

// Code that a page shows is a part of an example that is compiled and run. The
// quick start has a test of its own.
func TestDocsShowCodeThatRuns(t *testing.T) {
	examples := shown(t)
	blocks := 0
	for _, page := range pages(t) {
		if page == "docs/quickstart.md" {
			continue
		}
		for _, block := range fenced(t, page, "go") {
			require.True(t, strings.Contains(examples, block), "%s shows code that no example has:\n%s", page, block)
			blocks++
		}
	}
	require.Greater(t, blocks, 20)
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
