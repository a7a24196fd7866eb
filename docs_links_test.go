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

// fileName is a path or a file's name in a span of code.
var fileName = regexp.MustCompile(`^[\w./-]*\w\.(?:go|sh|sql|md|mod)$`)

// A file that a page names in code is one of ours, by its path or its name alone.
func TestDocsNameFilesThatExist(t *testing.T) {
	exists := map[string]bool{
		"src/backend/access/transam/xact.c": true, "src/backend/storage/ipc/procarray.c": true, // PostgreSQL's
		".down.sql": true, // what golang-migrate calls a way down
	}
	require.NoError(t, filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		for name := path; !entry.IsDir(); {
			exists[name] = true
			_, rest, found := strings.Cut(name, "/")
			if !found {
				break
			}
			name = rest
		}
		return err
	}))
	require.False(t, exists["pass.go"])
	names := 0
	for _, page := range pages(t) {
		for _, m := range span.FindAllStringSubmatch(prose(t, page), -1) {
			if fileName.MatchString(m[1]) {
				require.True(t, exists[m[1]], "%s: there is no file %s", page, m[1])
				names++
			}
		}
	}
	require.Greater(t, names, 5)
}
