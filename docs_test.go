package outbox_test

import (
	"fmt"
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

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	fence   = regexp.MustCompile("(?ms)^```.*?^```$")
	unslug  = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
)

// prose returns a page without its blocks of code.
func prose(t *testing.T, page string) string {
	t.Helper()
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	return fence.ReplaceAllString(string(text), "")
}

// anchors returns the names by which a page's headings are linked to.
func anchors(t *testing.T, page string) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(prose(t, page), -1) {
		name := strings.ReplaceAll(unslug.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-")
		unique := name
		for n := 1; all[unique]; n++ {
			unique = fmt.Sprintf("%s-%d", name, n)
		}
		all[unique] = true
	}
	return all
}

func TestDocsHaveNoDeadLink(t *testing.T) {
	for _, page := range pages(t) {
		for _, m := range link.FindAllStringSubmatch(prose(t, page), -1) {
			if strings.HasPrefix(m[1], "https://") {
				continue
			}
			path, anchor, _ := strings.Cut(m[1], "#")
			target := page
			if path != "" {
				target = filepath.Join(filepath.Dir(page), path)
			}
			info, err := os.Stat(target)
			require.NoError(t, err, page)
			require.True(t, anchor == "" || !info.IsDir() && anchors(t, target)[anchor], "%s links to %s, which has no such heading", page, m[1])
		}
	}
}

// Comments in the code send readers to pages that exist.
func TestDocsThatCodeNamesExist(t *testing.T) {
	named := regexp.MustCompile(`docs/[a-z-]+(?:/[a-z-]+)?\.md`).FindAllString(source(t, ".go"), -1)
	require.Greater(t, len(named), 5)
	for _, page := range named {
		_, err := os.Stat(page)
		require.NoError(t, err)
	}
}

// Every page of the documentation is in its index.
func TestDocsAreInTheIndex(t *testing.T) {
	text := prose(t, "docs/README.md")
	for _, page := range pages(t) {
		if path, isDoc := strings.CutPrefix(page, "docs/"); isDoc && path != "README.md" {
			require.Contains(t, text, "]("+path+")", "docs/README.md does not name it")
		}
	}
}

// shown are the files whose code pages show.
func shown(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, pattern := range []string{"*/example*_test.go", "eventstest/using_test.go", "docs/guide/*_test.go", "testdata/matrix/goose_test.go", "testdata/iam/entiam/example_test.go", "testdata/iam/entiam/tx.go"} {
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
			require.Contains(t, examples, block, page)
			blocks++
		}
	}
	require.Greater(t, blocks, 20)
}

// What a page tells to make is a target.
func TestDocsNameTargetsThatExist(t *testing.T) {
	makefile, err := os.ReadFile("Makefile")
	require.NoError(t, err)
	targets := 0
	for _, page := range pages(t) {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, m := range regexp.MustCompile("(?m)(?:`|^)make ([a-z]+)(?:`|\\s)").FindAllStringSubmatch(string(text), -1) {
			require.Contains(t, string(makefile), "\n"+m[1]+":", "%s: make %s", page, m[1])
			targets++
		}
	}
	require.Greater(t, targets, 5)
}
